//! The records of each kind.
//!
//! A record has its fields in a fixed order, as far as they fit. A long one goes on with a list, and a text of words
//! takes what is left.

use super::draft::Draft;
use super::words::{CITIES, FAMILY, GIVEN, TEXT};

const DOMAINS: [&str; 12] = [
    "example.org",
    "example.com",
    "example.net",
    "mail.example.org",
    "post.example.com",
    "box.example.net",
    "inbox.example.org",
    "web.example.com",
    "corp.example.net",
    "uni.example.org",
    "home.example.com",
    "net.example.net",
];
const ROLES: [&str; 4] =
    ["\"reader\"", "\"reader\",\"editor\"", "\"reader\",\"admin\"", "\"reader\",\"billing\""];
const PLANS: [&str; 4] = ["free", "basic", "team", "business"];
const TRUTHS: [&str; 2] = ["true", "false"];
const CURRENCIES: [&str; 6] = ["EUR", "USD", "GBP", "JPY", "INR", "BRL"];
const CATEGORIES: [&str; 10] =
    ["garden", "kitchen", "office", "outdoor", "sports", "toys", "books", "music", "lighting", "furniture"];
const LANGUAGES: [&str; 8] = ["en", "de", "fr", "es", "pt", "ja", "hi", "ar"];

/// What closes a record of JSON whose last field is a text.
const JSON_END: &[u8] = b"\"}";

/// A user in JSON.
pub(super) fn json_user(draft: &mut Draft<'_>) {
    const NOTE: &[u8] = b",\"note\":\"";
    const RESERVE: usize = NOTE.len() + JSON_END.len();
    draft.put(b"{\"id\":").number(8);
    let (given, family) = (draft.pick(&GIVEN), draft.pick(&FAMILY));
    draft.part(RESERVE, |d| {
        d.put(b",\"name\":\"").put(given).put(b" ").put(family).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"email\":\"");
        mail(d, given, family);
        d.put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"city\":\"").word(&CITIES).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"phone\":\"+").number(2).number(9).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"born\":\"").date(1950, 56).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"created\":\"").date(2019, 8).put(b"T").time().put(b"Z\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"avatar\":\"").hex(20).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"active\":").one_of(&TRUTHS).put(b",\"plan\":\"").one_of(&PLANS).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"roles\":[").one_of(&ROLES).put(b"]");
    });
    if draft.has_room(RESERVE) {
        draft.put(b",\"visits\":[");
        draft.entries(RESERVE, |d, at| {
            d.put(if at == 0 { b"{\"at\":\"" } else { b",{\"at\":\"" }).date(2025, 2).put(b"T").time();
            d.put(b"Z\",\"from\":\"").word(&CITIES).put(b"\",\"ms\":").number(3).put(b"}");
        });
        draft.put(b"]");
    }
    draft.put(NOTE).text(JSON_END.len()).put(JSON_END);
}

/// An address for a name.
fn mail(draft: &mut Draft<'_>, given: &[u8], family: &[u8]) {
    draft.small(given).put(b".").small(family).number(2).put(b"@").one_of(&DOMAINS);
}

/// A product in JSON.
pub(super) fn json_product(draft: &mut Draft<'_>) {
    const TEXT_FIELD: &[u8] = b",\"text\":\"";
    const RESERVE: usize = TEXT_FIELD.len() + JSON_END.len();
    draft.put(b"{\"sku\":\"").number(8).put(b"\",\"batch\":\"").hex(24).put(b"\"");
    draft.part(RESERVE, |d| {
        d.put(b",\"name\":\"").word(&TEXT).put(b" ").word(&TEXT).put(b" ").word(&TEXT).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"price\":{\"amount\":").number(2).put(b".").two_digits(0, 100);
        d.put(b",\"currency\":\"").one_of(&CURRENCIES).put(b"\"}");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"image\":\"/images/").hex(32).put(b".jpg\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"etag\":\"").hex(40).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"updated\":\"").date(2025, 2).put(b"T").time().put(b"Z\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"brand\":\"").word(&FAMILY).put(b"\"");
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"category\":\"").one_of(&CATEGORIES).put(b"\",\"in_stock\":").number(3);
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"rating\":").number(1).put(b".").number(1).put(b",\"reviews\":").number(3);
    });
    draft.part(RESERVE, |d| {
        d.put(b",\"ean\":\"").number(7).number(6).put(b"\",\"weight_g\":").number(4);
    });
    if draft.has_room(RESERVE) {
        draft.put(b",\"opinions\":[");
        draft.entries(RESERVE, |d, at| {
            d.put(if at == 0 { b"{\"by\":\"" } else { b",{\"by\":\"" }).word(&GIVEN).put(b"\",\"stars\":");
            d.number(1).put(b",\"says\":\"");
            (0..6).for_each(|_| d.word_of_text());
            d.put(b"\"}");
        });
        draft.put(b"]");
    }
    draft.put(TEXT_FIELD).text(JSON_END.len()).put(JSON_END);
}

/// A fragment of HTML.
pub(super) fn html(draft: &mut Draft<'_>) {
    const PARAGRAPH: &[u8] = b"<p>";
    const END: &[u8] = b"</p></article>";
    const RESERVE: usize = PARAGRAPH.len() + END.len();
    draft.put(b"<article id=\"p").hex(16).put(b"\">");
    draft.part(RESERVE, |d| {
        d.put(b"<h3><a href=\"/products/").hex(16).put(b"\">").word(&TEXT).put(b" ").word(&TEXT);
        d.put(b"</a></h3>");
    });
    draft.part(RESERVE, |d| {
        d.put(b"<img src=\"/images/").hex(40).put(b".jpg\">");
    });
    draft.part(RESERVE, |d| {
        d.put(b"<p>by ").word(&GIVEN).put(b" ").word(&FAMILY).put(b", ").word(&CITIES);
        d.put(b"</p>");
    });
    draft.part(RESERVE, |d| {
        d.put(b"<span class=\"price\">").number(3).put(b".").two_digits(0, 100).put(b" ");
        d.one_of(&CURRENCIES).put(b"</span>");
    });
    if draft.has_room(RESERVE) {
        draft.put(b"<ul class=\"tags\">");
        draft.entries(RESERVE, |d, _| {
            d.put(b"<li><a href=\"/tags/").number(4).put(b"\">").word(&TEXT).put(b" ").word(&TEXT);
            d.put(b"</a></li>");
        });
        draft.put(b"</ul>");
    }
    draft.put(PARAGRAPH).text(END.len()).put(END);
}

/// A user in MessagePack: a map of text to text, numbers, a truth and a list.
pub(super) fn msgpack_user(draft: &mut Draft<'_>) {
    const NOTE: &[u8] = b"\xa4note";
    // The length of the text takes three bytes at most.
    const RESERVE: usize = NOTE.len() + 3;
    let head = draft.out.len();
    let mut fields = 2;
    draft.put(b"\x80\xa2id\xce");
    pack_number(draft);
    let (given, family) = (draft.pick(&GIVEN), draft.pick(&FAMILY));
    fields += u8::from(draft.part(RESERVE, |d| {
        d.put(b"\xa4name").put(&[0xa1 + (given.len() + family.len()) as u8]);
        d.put(given).put(b" ").put(family);
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        d.put(b"\xa5email\xd9\0");
        let begin = d.out.len();
        mail(d, given, family);
        d.out[begin - 1] = (d.out.len() - begin) as u8;
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        let city = d.pick(&CITIES);
        d.put(b"\xa4city").put(&[0xa0 + city.len() as u8]).put(city);
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        d.put(b"\xa5phone\xac+").number(2).number(9);
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        d.put(b"\xa4born\xaa").date(1950, 56);
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        d.put(b"\xa7created\xce\x65");
        d.bytes(3);
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        let active = 0xc2 + d.below(2) as u8;
        d.put(b"\xa6active").put(&[active]);
    }));
    fields += u8::from(draft.part(RESERVE, |d| {
        d.put(b"\xa6avatar\xc4\x08").bytes(8);
    }));
    if draft.has_room(RESERVE) {
        fields += 1;
        draft.put(b"\xa6visits\xdc\0\0");
        let begin = draft.out.len();
        let count = draft.entries(RESERVE, |d, _| {
            let city = d.pick(&CITIES);
            d.put(b"\x82\xa2at\xce");
            pack_number(d);
            d.put(b"\xa4from").put(&[0xa0 + city.len() as u8]).put(city);
        });
        draft.out[begin - 2..begin].copy_from_slice(&(count as u16).to_be_bytes());
    }
    draft.out[head] |= fields;
    draft.put(NOTE);
    match draft.left() {
        0 => {}
        left @ 1..=32 => drop(draft.put(&[0xa0 + (left - 1) as u8])),
        // As short as it is, no text without a byte for its length would fill the rest.
        left @ 33..=257 => drop(draft.put(&[0xd9, (left - 2) as u8])),
        left => drop(draft.put(b"\xda").put(&((left - 3) as u16).to_be_bytes())),
    }
    draft.text(0);
}

/// Four bytes of a number.
fn pack_number(draft: &mut Draft<'_>) {
    let number = draft.below(90_000_000) + 10_000_000;
    draft.put(&number.to_be_bytes());
}

/// A session as Python's pickle writes it in its protocol 4: a dict of text to text and numbers.
pub(super) fn pickle_session(draft: &mut Draft<'_>) {
    const NOTE: &[u8] = b"\x8c\x04note\x94X";
    const END: &[u8] = b"\x94u.";
    const RESERVE: usize = NOTE.len() + 4 + END.len();
    const FRAME: usize = 11;
    let begin = draft.out.len();
    draft.put(b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94(\x8c\x0d_auth_user_id\x94\x8c\x08").number(8).put(b"\x94");
    draft.part(RESERVE, |d| {
        d.put(b"\x8c\x12_auth_user_backend\x94\x8c\x29django.contrib.auth.backends.ModelBackend\x94");
    });
    draft.part(RESERVE, |d| {
        d.put(b"\x8c\x0f_auth_user_hash\x94\x8c\x40").hex(64).put(b"\x94");
    });
    draft.part(RESERVE, |d| {
        d.put(b"\x8c\x0b_csrf_token\x94\x8c\x40").hex(64).put(b"\x94");
    });
    draft.part(RESERVE, |d| {
        d.put(b"\x8c\x09_language\x94\x8c\x02").one_of(&LANGUAGES).put(b"\x94");
    });
    draft.part(RESERVE, |d| {
        d.put(b"\x8c\x0f_session_expiry\x94J\0\x75\x12\0\x8c\x09last_seen\x94\x8c\x14");
        d.date(2026, 1).put(b"T").time().put(b"Z\x94");
    });
    if draft.has_room(RESERVE) {
        draft.put(b"\x8c\x04cart\x94]\x94(");
        draft.entries(RESERVE, |d, _| {
            let count = d.below(9) as u8 + 1;
            d.put(b"}\x94(\x8c\x03sku\x94\x8c\x08").number(8).put(b"\x94\x8c\x05count\x94K").put(&[count]);
            d.put(b"u");
        });
        draft.put(b"e");
    }
    let text = draft.left().saturating_sub(RESERVE) as u32;
    draft.put(NOTE).put(&text.to_le_bytes()).text(END.len()).put(END);
    let frame = (draft.out.len() - begin - FRAME) as u64;
    draft.out[begin + FRAME - 8..begin + FRAME].copy_from_slice(&frame.to_le_bytes());
}
