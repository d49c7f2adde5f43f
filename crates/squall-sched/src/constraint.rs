//! Parses `--constraint`: feature names with `&` and `|`, and counts of nodes, as the manual page of Slurm's sbatch
//! defines it.

/// Maximum number of alternatives; a constraint with more is refused.
const ALTERNATIVES_MAX: usize = 64;
/// Maximum depth of nested parentheses in a constraint.
const DEPTH_MAX: u32 = 16;

/// Names of features, all of which a node must have.
type All = Vec<String>;

/// A constraint on the features of a job's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraint {
    /// Each node must have all features of one of these lists; empty: any node is allowed.
    alternatives: Vec<All>,
    /// Whether all nodes must fulfil the same alternative.
    alike: bool,
    /// Pairs (number, features): at least this many nodes must have all these features.
    counts: Vec<(u32, All)>,
}

impl Constraint {
    /// Parses `a&b|c`, `(a|b)&c`, `[a|b]` (all nodes fulfil the same alternative), and `a*2` or `[a*2&(b&c)*4]`
    /// (counts of nodes). None: syntax error.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let inner = bracketed.unwrap_or(text);
        if !inner.contains('*') {
            let alternatives = read(inner)?;
            let alike = bracketed.is_some() && alternatives.len() > 1;
            return Some(Self { alternatives, alike, counts: Vec::new() });
        }
        let (mut counts, mut of_each) = (Vec::new(), Vec::new());
        for part in split(inner) {
            match part.rsplit_once('*') {
                None => of_each.push(format!("({part})")),
                Some((features, count)) => {
                    let count: u32 = count.trim().parse().ok().filter(|count| *count > 0)?;
                    let [features] = <[All; 1]>::try_from(read(features)?).ok()?;
                    counts.push((count, features));
                }
            }
        }
        if counts.len() > ALTERNATIVES_MAX {
            return None;
        }
        let alternatives = if of_each.is_empty() { Vec::new() } else { read(&of_each.join("&"))? };
        Some(Self { alternatives, alike: false, counts })
    }
    /// Returns whether a node with these features is allowed, apart from counts, which other nodes may fulfil.
    pub fn holds(&self, features: &[String]) -> bool {
        self.alternatives.is_empty() || self.alternatives.iter().any(|all| has(features, all))
    }
    /// Returns every feature that the constraint names.
    pub fn features(&self) -> impl Iterator<Item = &str> {
        let counted = self.counts.iter().map(|(_, all)| all);
        self.alternatives.iter().chain(counted).flatten().map(String::as_str)
    }
    /// Returns whether each node can be checked by itself: there are no counts, and nodes need not be alike.
    pub fn is_of_each(&self) -> bool {
        !self.alike && self.counts.is_empty()
    }
    /// Returns one constraint for each alternative, if all nodes must fulfil the same one. None otherwise.
    pub(crate) fn ways(&self) -> Option<impl Iterator<Item = Self>> {
        let one = |all: &All| Self { alternatives: vec![all.clone()], ..Self::default() };
        self.alike.then(|| self.alternatives.iter().map(one))
    }
    /// Returns pairs (number, features): at least this many nodes must have all these features.
    pub(crate) fn counts(&self) -> &[(u32, Vec<String>)] {
        &self.counts
    }
    /// Returns the constraint on each single node, without counts.
    pub(crate) fn of_each(&self) -> Self {
        Self { alternatives: self.alternatives.clone(), ..Self::default() }
    }
}

/// Returns whether a node's `features` include all those in `all`.
pub(crate) fn has(features: &[String], all: &[String]) -> bool {
    all.iter().all(|wanted| features.contains(wanted))
}

/// Splits a text at each `&` outside parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '&' && depth == 0
    })
}

/// Parses alternatives, each a list of features that a node must all have. `&` binds tighter than `|`.
fn read(text: &str) -> Option<Vec<All>> {
    let mut reader = Reader { rest: text, depth: 0 };
    let all = reader.either()?;
    reader.rest.trim().is_empty().then_some(all)
}

/// Parser state: the remaining text, and the depth of parentheses.
struct Reader<'a> {
    rest: &'a str,
    depth: u32,
}

impl Reader<'_> {
    fn either(&mut self) -> Option<Vec<All>> {
        let mut all = self.both()?;
        while self.takes('|') {
            all.extend(self.both()?);
        }
        (all.len() <= ALTERNATIVES_MAX).then_some(all)
    }
    fn both(&mut self) -> Option<Vec<All>> {
        let mut all = self.one()?;
        while self.takes('&') {
            let more = self.one()?;
            if all.len() * more.len() > ALTERNATIVES_MAX {
                return None;
            }
            match &more[..] {
                [one] => all.iter_mut().for_each(|a| a.extend_from_slice(one)),
                _ => all = all.iter().flat_map(|a| more.iter().map(|b| [a.as_slice(), b].concat())).collect(),
            }
        }
        Some(all)
    }
    fn one(&mut self) -> Option<Vec<All>> {
        if self.takes('(') {
            self.depth += 1;
            let inner = if self.depth > DEPTH_MAX { None } else { self.either() };
            self.depth -= 1;
            return inner.filter(|_| self.takes(')'));
        }
        let (name, rest) = self.rest.split_at(self.rest.find(['&', '|', '(', ')']).unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(vec![vec![feature(name)?]])
    }
    fn takes(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn feature(text: &str) -> Option<String> {
    let name = text.trim();
    let fine = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.:=+/".contains(c));
    fine.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert!(holds("(a|b)&c", &["b", "c"]) && !holds("(a|b)&c", &["b"]));
        assert!(holds("( a & (b|c) )", &["a", "c"]));
    }

    #[test]
    fn nodes_alike_and_counted() {
        let of = |text: &str| Constraint::parse(text).unwrap();
        assert_eq!(of("[x|y&z]").ways().unwrap().collect::<Vec<_>>(), [of("x"), of("y&z")]);
        assert!(of("x|y").ways().is_none() && of("[x&y]").ways().is_none());
        let counted = of("[x*2&(y&z)*4&w]");
        assert_eq!(counted.counts(), [(2, vec!["x".to_owned()]), (4, vec!["y".into(), "z".into()])]);
        assert_eq!((counted.of_each(), counted.features().count()), (of("w"), 4));
        assert_eq!(of("x*3").counts(), [(3, vec!["x".to_owned()])]);
        assert!(holds("x*3", &["y"]));
    }

    #[test]
    fn long_lists_take_no_longer_than_they_are() {
        let long = vec!["a"; 100_000].join("&");
        assert_eq!(Constraint::parse(&long).unwrap().features().count(), 100_000);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let deep = "(".repeat(100_000);
        let (wide, many) = (["(a|b)"; 9].join("&"), ["a*1"; 99].join("&"));
        let texts = [
            "", "a&", "a*0", "a*", "*2", "a*b", "a|b*2", "(a|b)*2", "a|[b", "a b", "(a", "a)", "()", &deep, &wide,
            &many,
        ];
        for text in texts {
            assert_eq!(Constraint::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[ab&|()*2\\[\\] ]{0,40}") {
            Constraint::parse(&text);
        }
    }
}
