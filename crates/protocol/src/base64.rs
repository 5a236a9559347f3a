//! Standard base64 with padding, for the `b` flag of the meta commands. Decoding is strict: the length is a
//! multiple of four, padding occurs only at the end, and there are no spaces.

use crate::limits::KEY_BYTES_MAX;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BAD: u8 = 0xff;
const VALUES: [u8; 256] = {
    let mut values = [BAD; 256];
    let mut at = 0;
    while at < 64 {
        values[ALPHABET[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// Appends `bytes` in base64, padded.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let (triples, tail) = bytes.as_chunks::<3>();
    for triple in triples {
        out.extend_from_slice(&quad(*triple));
    }
    match *tail {
        [a] => out.extend_from_slice(&[quad([a, 0, 0])[0], quad([a, 0, 0])[1], b'=', b'=']),
        [a, b] => {
            let [first, second, third, _] = quad([a, b, 0]);
            out.extend_from_slice(&[first, second, third, b'=']);
        }
        _ => {}
    }
}

fn quad(triple: [u8; 3]) -> [u8; 4] {
    let [a, b, c] = triple;
    [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63].map(|value| ALPHABET[usize::from(value)])
}

/// Decodes the key of a request with the `b` flag into `buffer`. `None` if the token is empty, is not base64, or
/// decodes to more bytes than a key may have. A key that [`crate::parse()`] accepted always decodes.
pub fn decode_key<'b>(token: &[u8], buffer: &'b mut [u8; KEY_BYTES_MAX]) -> Option<&'b [u8]> {
    let (quads, tail) = token.as_chunks::<4>();
    let (last, whole) = quads.split_last()?;
    if !tail.is_empty() || quads.len() * 3 > KEY_BYTES_MAX + 2 {
        return None;
    }
    let mut length = 0;
    for four in whole {
        buffer.get_mut(length..length + 3)?.copy_from_slice(&triple(*four)?);
        length += 3;
    }
    let (last, kept) = match *last {
        [a, b, b'=', b'='] => ([a, b, b'A', b'A'], 1),
        [a, b, c, b'='] => ([a, b, c, b'A'], 2),
        all => (all, 3),
    };
    buffer.get_mut(length..length + kept)?.copy_from_slice(&triple(last)?[..kept]);
    Some(&buffer[..length + kept])
}

fn triple(four: [u8; 4]) -> Option<[u8; 3]> {
    let [a, b, c, d] = four.map(|byte| VALUES[usize::from(byte)]);
    if a | b | c | d == BAD {
        return None;
    }
    Some([a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        let pairs: [(&[u8], &[u8]); 6] = [
            (b"f", b"Zg=="),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
            (b"fooba", b"Zm9vYmE="),
            (b"foobar", b"Zm9vYmFy"),
        ];
        for (plain, encoded) in pairs {
            let mut out = Vec::new();
            base64(&mut out, plain);
            assert_eq!(out, encoded);
            assert_eq!(decode_key(encoded, &mut [0; 250]), Some(plain));
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for token in
            ["", "Z", "Zm", "Zm9", "Zm9vY", "====", "Z===", "Zm=v", "Zm9!", "Zm9v\n", "=AAA", "Zg==Zg=="]
        {
            assert_eq!(decode_key(token.as_bytes(), &mut [0; 250]), None, "{token:?}");
        }
    }

    #[test]
    fn lengths_up_to_the_key_limit_survive_the_round_trip() {
        for length in 1..=250usize {
            let plain: Vec<u8> = (0..length).map(|at| (at * 37 + length) as u8).collect();
            let mut out = Vec::new();
            base64(&mut out, &plain);
            assert_eq!(decode_key(&out, &mut [0; 250]), Some(&plain[..]));
        }
        assert_eq!(decode_key(&[b'A'; 336], &mut [0; 250]), None);
    }
}
