//! `--constraint`: feature names with `&` and `|`.

/// Alternatives, each a list of features that a node must all have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraint {
    alternatives: Vec<Vec<String>>,
}

impl Constraint {
    /// Reads `a&b|c`; round and square brackets around the whole are taken off. None: something else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let inner = inner.or_else(|| text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'))).unwrap_or(text);
        let alternatives = inner.split('|').map(|part| part.split('&').map(feature).collect());
        alternatives.collect::<Option<Vec<Vec<String>>>>().map(|alternatives| Self { alternatives })
    }
    /// Whether a node with these features will do.
    pub fn holds(&self, features: &[String]) -> bool {
        self.alternatives.iter().any(|all| all.iter().all(|wanted| features.contains(wanted)))
    }
    /// Every feature named.
    pub fn features(&self) -> impl Iterator<Item = &str> {
        self.alternatives.iter().flatten().map(String::as_str)
    }
}

fn feature(text: &str) -> Option<String> {
    let name = text.trim();
    let fine = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.:=+/".contains(c));
    fine.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Constraint;

    fn holds(constraint: &str, features: &[&str]) -> bool {
        let features: Vec<String> = features.iter().map(|f| (*f).to_owned()).collect();
        Constraint::parse(constraint).unwrap().holds(&features)
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(holds("a&b|c", &["c"]));
        assert!(holds("a&b|c", &["a", "b"]));
        assert!(!holds("a&b|c", &["a"]));
        assert!(holds("[x|y]", &["y"]));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["", "a&", "a*2", "a|[b", "a b"] {
            assert_eq!(Constraint::parse(text), None, "{text:?}");
        }
    }
}
