//! What is set for a namespace, and what is shown of it.

/// The most namespaces that can be named.
pub const NAMESPACES_MAX: usize = 64;
/// The longest name of a namespace, bytes.
pub const NAMESPACE_BYTES_MAX: usize = 100;
/// The most that the least shares of all namespaces may come to, percent.
const LEAST_PERCENT_MAX: u32 = 80;

/// What is set for one namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// What its keys have before the first delimiter.
    pub name: String,
    /// Its items are kept while they take less than this share of the memory for items, percent.
    pub least_percent: u8,
    /// Its items go first while they take more than this share, percent.
    pub most_percent: u8,
    /// The longest time to live of its items, seconds; 0 = no limit.
    pub ttl_max_s: u32,
}

/// Says what is wrong with a list of namespaces, if anything.
///
/// # Errors
/// One line that says what is wrong.
pub fn check_namespaces(list: &[Namespace]) -> Result<(), String> {
    if list.len() > NAMESPACES_MAX {
        return Err(format!("{} namespaces are too many: at most {NAMESPACES_MAX}", list.len()));
    }
    for (nth, namespace) in list.iter().enumerate() {
        let name = &namespace.name;
        if name.is_empty() || name.len() > NAMESPACE_BYTES_MAX {
            return Err(format!("the name of a namespace has 1 to {NAMESPACE_BYTES_MAX} bytes: '{name}'"));
        }
        if name.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(format!("the name of a namespace has no control characters: {name:?}"));
        }
        if list[..nth].iter().any(|other| other.name == *name) {
            return Err(format!("the namespace '{name}' is there twice"));
        }
        if namespace.least_percent > namespace.most_percent || namespace.most_percent > 100 {
            return Err(format!("the shares of '{name}' are no range of percents: give for example 10-50"));
        }
    }
    let least: u32 = list.iter().map(|namespace| u32::from(namespace.least_percent)).sum();
    if least > LEAST_PERCENT_MAX {
        return Err(format!("the least shares come to {least} percent: at most {LEAST_PERCENT_MAX}"));
    }
    Ok(())
}

/// What is known of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceStats {
    /// What is set.
    pub namespace: Namespace,
    /// Reads of its keys since it was named.
    pub gets: u64,
    /// Those that found an item.
    pub hits: u64,
    /// Items that were stored.
    pub sets: u64,
    /// Live items that were evicted.
    pub evictions: u64,
    /// About how many items are in memory.
    pub items: u64,
    /// About how many bytes they take.
    pub bytes: u64,
    /// The shares in bytes: the least, and the most.
    pub share_bytes: (u64, u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, least_percent: u8, most_percent: u8, ttl_max_s: u32) -> Namespace {
        Namespace { name: name.to_owned(), least_percent, most_percent, ttl_max_s }
    }

    #[test]
    fn a_list_that_cannot_be_is_refused() {
        let wrong = |list: &[Namespace]| check_namespaces(list).unwrap_err();
        assert!(wrong(&[namespace("", 0, 100, 0)]).contains("1 to 100 bytes"));
        assert!(wrong(&[namespace("a", 0, 100, 0), namespace("a", 1, 100, 0)]).contains("twice"));
        assert!(wrong(&[namespace("a", 50, 40, 0)]).contains("no range"));
        assert!(wrong(&[namespace("a", 50, 101, 0)]).contains("no range"));
        let many: Vec<_> = (0..65).map(|nth| namespace(&format!("{nth}"), 0, 100, 0)).collect();
        assert!(wrong(&many).contains("too many"));
        assert!(wrong(&[namespace("a", 50, 60, 0), namespace("b", 31, 60, 0)]).contains("81 percent"));
        assert_eq!(check_namespaces(&[namespace("a", 50, 60, 0), namespace("b", 30, 60, 0)]), Ok(()));
    }
}
