//! The name of a script.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The name of a script: the SHA-1 of its text, as 40 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name([u8; 40]);

/// A digest is as good as a hash of it.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let digits = self.0.first_chunk().copied().unwrap_or_default();
        state.write_u64(u64::from_le_bytes(digits));
    }
}

/// Tables of scripts by their names.
pub(crate) type ByName = BuildHasherDefault<FirstDigits>;

/// Mixes the first digits of a name.
#[derive(Default)]
pub(crate) struct FirstDigits(u64);

impl Hasher for FirstDigits {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, digits: u64) {
        self.0 = digits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

impl Name {
    /// The name of the script with this text.
    pub fn of(text: &[u8]) -> Name {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut name = [0; 40];
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text);
        for (two, byte) in name.chunks_exact_mut(2).zip(digest.as_ref()) {
            two.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        Name(name)
    }

    /// Reads a name, in any case. `None` = no script can have it.
    pub fn read(text: &[u8]) -> Option<Name> {
        let mut name: [u8; 40] = text.try_into().ok()?;
        name.make_ascii_lowercase();
        name.iter().all(u8::is_ascii_hexdigit).then_some(Name(name))
    }

    /// About half of all names are.
    pub(crate) fn is_odd(&self) -> bool {
        self.0[39] & 1 == 1
    }

    /// The digits.
    pub fn digits(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_called_by_its_digest() {
        let name = Name::of(b"return 1");
        assert_eq!(name.digits(), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Name::read(b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB"), Some(name));
        assert_eq!(Name::read(b"e0e1"), None);
        assert_eq!(Name::read(&[b'g'; 40]), None);
    }
}
