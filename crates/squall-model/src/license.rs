//! Lists of licenses, as users write them: `fluent:2,matlab` is two of `fluent` and one of `matlab`.

use std::collections::BTreeMap;

/// Reads a list of licenses, as `fluent:2,matlab`, and returns the number of each. None: the text is not such a list.
pub fn parse(text: &str) -> Option<BTreeMap<String, u32>> {
    let mut counts = BTreeMap::new();
    for word in text.split([',', ';']).map(str::trim).filter(|word| !word.is_empty()) {
        let (name, count) = word.split_once([':', '=', '*']).unwrap_or((word, "1"));
        let count: u32 = count.parse().ok()?;
        let fine = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.@/+".contains(c));
        if !fine {
            return None;
        }
        let sum: &mut u32 = counts.entry(name.to_owned()).or_default();
        *sum = sum.checked_add(count)?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn counts_add_up_and_default_to_one() {
        let of = |text: &str| parse(text).map(|counts| counts.into_iter().collect::<Vec<_>>());
        assert_eq!(of("foo:2,bar"), Some(vec![("bar".into(), 1), ("foo".into(), 2)]));
        assert_eq!(of("foo, foo:3"), Some(vec![("foo".into(), 4)]));
        assert_eq!(of(""), Some(vec![]));
        for wrong in ["foo:x", ":2", "foo:-1", "a b", "foo:4294967295,foo"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
