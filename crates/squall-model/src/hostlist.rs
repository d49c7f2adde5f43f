//! Host lists such as `n[001-003,7],g-[1-2]x[0-3]`: expanding them to names and compressing names to them.

use std::fmt;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use crate::limits::{HOSTLIST_MAX, HOSTNAME_BYTES_MAX, LISTED_NAME_BYTES, LISTED_NAMES_MIN};

/// Most digits at the end of a name that [`compress`] reads as a number. Digits before these count as text.
const DIGITS_MAX: usize = 18;

/// Error of reading a host list: what is wrong and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostListError {
    /// Byte offset of the error in the text.
    pub at: usize,
    /// What is wrong at that offset.
    pub problem: HostListProblem,
}

/// Kinds of errors in a host list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostListProblem {
    /// A `[` has no matching `]`.
    Unclosed,
    /// A `]` has no matching `[`.
    Unopened,
    /// A `[` is within brackets.
    Nested,
    /// A number is missing, as in `[]` or `[1,,2]`.
    EmptyRange,
    /// Something other than a number is where a number is needed.
    NotANumber,
    /// The range runs backwards, as in `[5-3]`.
    Backwards,
    /// The step of a range is zero, as in `[1-9/0]`.
    ZeroStep,
    /// A name is longer than `HOSTNAME_BYTES_MAX` (255 bytes).
    NameTooLong,
    /// There are more names than allowed: more than `HOSTLIST_MAX` (1,048,576), or than fits the size of the cluster.
    TooMany,
}

impl fmt::Display for HostListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.problem {
            HostListProblem::Unclosed => "'[' is never closed",
            HostListProblem::Unopened => "']' without '['",
            HostListProblem::Nested => "'[' within brackets",
            HostListProblem::EmptyRange => "a number is missing",
            HostListProblem::NotANumber => "not a number",
            HostListProblem::Backwards => "the range runs backwards",
            HostListProblem::ZeroStep => "the step is zero",
            HostListProblem::NameTooLong => "the name is too long",
            HostListProblem::TooMany => "more names than there can be",
        };
        write!(f, "{what} (at character {})", self.at + 1)
    }
}

impl std::error::Error for HostListError {}

/// Expands a host list to all its names, in the order given, with repetitions. Parts of a list are separated by commas
/// or white space. Brackets hold numbers, ranges and ranges with a step (`0-10/2`). Several pairs of brackets in a name
/// multiply in Slurm's order: the last one varies fastest, then the first. Leading zeros are kept.
pub fn expand(text: &str) -> Result<Vec<String>, HostListError> {
    expand_at_most(text, HOSTLIST_MAX)
}

/// Expands a host list from a user, for a cluster of `nodes` nodes. A list with many more names than nodes, or a very
/// long one, is refused before it takes time or memory.
pub fn expand_within(text: &str, nodes: usize) -> Result<Vec<String>, HostListError> {
    let most = nodes.saturating_mul(2).clamp(LISTED_NAMES_MIN, HOSTLIST_MAX);
    if text.len() > most.saturating_mul(LISTED_NAME_BYTES) {
        return Err(HostListError { at: 0, problem: HostListProblem::TooMany });
    }
    expand_at_most(text, most)
}

fn expand_at_most(text: &str, most: usize) -> Result<Vec<String>, HostListError> {
    let mut names = Vec::new();
    each_term(text, most, |parts, count| {
        names.reserve(count);
        append_product(parts, &mut names);
    })?;
    Ok(names)
}

/// Calls `see` for each term of a list, with the term's parts and number of names. Fails at a term that exceeds the
/// limits.
fn each_term<'a>(text: &'a str, most: usize, mut see: impl FnMut(&[Part<'a>], usize)) -> Result<(), HostListError> {
    let mut total = 0;
    for (at, term) in terms(text)? {
        let parts = parse_term(term, at)?;
        let count = parts.iter().try_fold(1_usize, |n, p| n.checked_mul(p.count())).unwrap_or(usize::MAX);
        if count > most - total {
            return Err(HostListError { at, problem: HostListProblem::TooMany });
        }
        if parts.iter().map(Part::longest).sum::<usize>() > HOSTNAME_BYTES_MAX {
            return Err(HostListError { at, problem: HostListProblem::NameTooLong });
        }
        total += count;
        see(&parts, count);
    }
    Ok(())
}

/// Compresses names to Slurm's form: sorted by name and number, without repetitions, as in `g1,n[1-4,9]`. Ranges are
/// made of the numbers at the ends of names.
pub fn compress<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<S> = names.into_iter().collect();
    let mut split: Vec<Name<'_>> = names.iter().map(|n| Name::split(n.as_ref())).collect();
    split.sort_unstable();
    split.dedup();
    render(&split)
}

/// Compresses like [`compress`], but in the order given and with repetitions (`scontrol show hostlist`).
pub fn compress_in_order<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<S> = names.into_iter().collect();
    let split: Vec<Name<'_>> = names.iter().map(|n| Name::split(n.as_ref())).collect();
    render(&split)
}

/// Returns whether the text, read as a host list, is one name that equals the text. Only such a text can be a node's
/// name.
pub fn is_name(text: &str) -> bool {
    expand(text).is_ok_and(|names| names == [text])
}

/// A list of names in order, stored as a host list: 10,080 names may take no more than `n[1-10080]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    text: String,
    len: usize,
}

impl TryFrom<String> for HostList {
    type Error = HostListError;

    /// Reads a host list in the format of [`expand`]. Names are counted but not created.
    fn try_from(text: String) -> Result<Self, HostListError> {
        let mut len = 0;
        if is_single(&text) {
            len = 1;
        } else {
            each_term(&text, HOSTLIST_MAX, |_, count| len += count)?;
        }
        Ok(Self { text, len })
    }
}

impl<C> Encode<C> for HostList {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(&self.text)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for HostList {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        d.str()?.to_owned().try_into().map_err(decode::Error::message)
    }
}

/// Returns whether the text is a single name without brackets or separators. Most lists are, and need no parsing.
fn is_single(text: &str) -> bool {
    (1..=HOSTNAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

impl<S: AsRef<str>> FromIterator<S> for HostList {
    /// Builds a list of names, each of which must satisfy [`is_name`].
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let names: Vec<S> = iter.into_iter().collect();
        let text = match &names[..] {
            [one] => one.as_ref().to_owned(),
            _ => compress_in_order(&names),
        };
        Self { len: names.len(), text }
    }
}

impl HostList {
    /// Returns the list in Slurm's form.
    pub fn as_str(&self) -> &str {
        &self.text
    }
    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Returns all names, in order.
    pub fn names(&self) -> Vec<String> {
        expand(&self.text).unwrap_or_default()
    }
    /// Returns the name at index `i`, without creating the others. None: there are fewer names.
    pub fn get(&self, i: usize) -> Option<String> {
        if self.len == 1 && is_single(&self.text) {
            return (i == 0).then(|| self.text.clone());
        }
        let (mut found, mut left) = (None, Some(i));
        let seen = each_term(&self.text, HOSTLIST_MAX, |parts, count| {
            if let Some(place) = left {
                left = place.checked_sub(count);
                if left.is_none() {
                    found = Some(nth_of_product(parts, place));
                }
            }
        });
        seen.ok().and(found)
    }
}

/// Part of a term (one name or group of names in a host list): a text, or numbers in brackets.
enum Part<'a> {
    Text(&'a str),
    Numbers(Vec<Numbers>),
}

/// Returns whether `name` is one of the names of a host list, without expanding it.
pub fn contains(text: &str, name: &str) -> bool {
    let Ok(terms) = terms(text) else { return false };
    terms.into_iter().any(|(at, term)| parse_term(term, at).is_ok_and(|parts| matches(&parts, name)))
}

/// Returns whether the parts, one after the other, can produce `text`.
fn matches(parts: &[Part<'_>], text: &str) -> bool {
    match parts.split_first() {
        None => text.is_empty(),
        Some((Part::Text(own), rest)) => text.strip_prefix(own).is_some_and(|text| matches(rest, text)),
        Some((Part::Numbers(all), rest)) => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            (1..=digits).any(|length| {
                let (number, text) = text.split_at(length);
                all.iter().any(|numbers| numbers.makes(number)) && matches(rest, text)
            })
        }
    }
}

/// Numbers in brackets: a range `first-last/step`, formatted with at least `width` digits.
struct Numbers {
    first: u64,
    last: u64,
    step: u64,
    width: usize,
}

impl Numbers {
    fn makes(&self, text: &str) -> bool {
        let Ok(number) = text.parse::<u64>() else { return false };
        let within = (self.first..=self.last).contains(&number) && (number - self.first).is_multiple_of(self.step);
        within && format!("{number:0width$}", width = self.width) == text
    }
    fn count(&self) -> usize {
        usize::try_from((self.last - self.first) / self.step).unwrap_or(usize::MAX).saturating_add(1)
    }
}

impl Part<'_> {
    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(all) => all.iter().fold(0, |n, r| n.saturating_add(r.count())),
        }
    }
    /// Returns the text at index `i` of all those that the part produces.
    fn at(&self, i: usize) -> String {
        let all = match self {
            Self::Text(text) => return (*text).to_owned(),
            Self::Numbers(all) => all,
        };
        let mut left = i as u64;
        for r in all {
            if left < r.count() as u64 {
                return format!("{:0width$}", r.first + left * r.step, width = r.width);
            }
            left -= r.count() as u64;
        }
        String::new()
    }
    fn longest(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Numbers(all) => all.iter().map(|r| r.width.max(decimal_digits(r.last))).max().unwrap_or(0),
        }
    }
}

fn decimal_digits(n: u64) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Returns the terms of a list (separated by commas or white space outside of brackets), each with its byte offset.
fn terms(text: &str) -> Result<Vec<(usize, &str)>, HostListError> {
    let mut out = Vec::new();
    let (mut start, mut open) = (0, None);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' if open.is_some() => return Err(HostListError { at, problem: HostListProblem::Nested }),
            b'[' => open = Some(at),
            b']' if open.take().is_none() => return Err(HostListError { at, problem: HostListProblem::Unopened }),
            b',' | b' ' | b'\t' | b'\n' | b'\r' if open.is_none() => {
                out.push((start, &text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some(at) = open {
        return Err(HostListError { at, problem: HostListProblem::Unclosed });
    }
    out.push((start, &text[start..]));
    out.retain(|(_, term)| !term.is_empty());
    Ok(out)
}

/// Parses a term of a host list. The term's brackets are balanced and not nested. `offset`: where the term begins in
/// the list.
fn parse_term(term: &str, offset: usize) -> Result<Vec<Part<'_>>, HostListError> {
    let mut parts = Vec::new();
    let (mut rest, mut at) = (term, offset);
    while let Some((text, tail)) = rest.split_once('[') {
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        at += text.len() + 1;
        let (inside, after) = tail.split_once(']').unwrap_or((tail, ""));
        parts.push(Part::Numbers(parse_numbers(inside, at)?));
        at += inside.len() + 1;
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    Ok(parts)
}

fn parse_numbers(inside: &str, offset: usize) -> Result<Vec<Numbers>, HostListError> {
    let mut out = Vec::new();
    let mut at = offset;
    for item in inside.split(',') {
        let fail = |problem| Err(HostListError { at, problem });
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, number(step, at + range.len() + 1)?),
            None => (item, 1),
        };
        if step == 0 {
            return fail(HostListProblem::ZeroStep);
        }
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let first = number(low, at)?;
        let last = number(high, at + range.len() - high.len())?;
        if first > last {
            return fail(HostListProblem::Backwards);
        }
        if low.len() > HOSTNAME_BYTES_MAX {
            return fail(HostListProblem::NameTooLong);
        }
        let width = if low.starts_with('0') { low.len() } else { 1 };
        out.push(Numbers { first, last, step, width });
        at += item.len() + 1;
    }
    Ok(out)
}

fn number(text: &str, at: usize) -> Result<u64, HostListError> {
    if text.is_empty() {
        return Err(HostListError { at, problem: HostListProblem::EmptyRange });
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(HostListError { at, problem: HostListProblem::NotANumber });
    }
    text.parse().map_err(|_| HostListError { at, problem: HostListProblem::NotANumber })
}

fn append_product(parts: &[Part<'_>], names: &mut Vec<String>) {
    if parts.iter().filter(|part| matches!(part, Part::Numbers(_))).count() > 2 {
        let count: usize = parts.iter().map(Part::count).product();
        names.extend((0..count).map(|i| nth_of_product(parts, i)));
        return;
    }
    let mut heads = vec![String::new()];
    for part in parts {
        match part {
            Part::Text(text) => heads.iter_mut().for_each(|h| h.push_str(text)),
            Part::Numbers(all) => {
                heads = heads
                    .iter()
                    .flat_map(|head| {
                        all.iter().flat_map(move |r| {
                            (0..r.count() as u64)
                                .map(move |i| format!("{head}{:0width$}", r.first + i * r.step, width = r.width))
                        })
                    })
                    .collect();
            }
        }
    }
    names.append(&mut heads);
}

/// Returns the name at index `i` of all those that the parts produce together (see [`append_product`]).
fn nth_of_product(parts: &[Part<'_>], i: usize) -> String {
    let mut left = i;
    let mut picked = vec![0; parts.len()];
    // The last group varies fastest, then the others from the first on.
    let last = parts.iter().rposition(|part| matches!(part, Part::Numbers(_)));
    for at in last.into_iter().chain((0..parts.len()).filter(|at| Some(*at) != last)) {
        picked[at] = left % parts[at].count();
        left /= parts[at].count();
    }
    parts.iter().zip(picked).map(|(part, at)| part.at(at)).collect()
}

/// A name, split before the number at its end. Names are ordered as in Slurm's sorted lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a> {
    prefix: &'a str,
    number: Option<u64>,
    digits: &'a str,
}

impl<'a> Name<'a> {
    fn split(name: &'a str) -> Self {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(DIGITS_MAX);
        let (prefix, digits) = name.split_at(name.len() - digits);
        Self { prefix, number: digits.parse().ok(), digits }
    }
    /// Returns whether this name comes after `last` in a range of names that starts with `first`.
    fn follows(&self, first: &Self, last: &Self) -> bool {
        let (Some(number), Some(before)) = (self.number, last.number) else { return false };
        number == before + 1
            && (first.digits.starts_with('0') || !self.digits.starts_with('0'))
            && self.digits.len() == first.digits.len().max(decimal_digits(number))
    }
}

/// Formats names as a host list. Consecutive names with the same prefix share one pair of brackets.
fn render(names: &[Name<'_>]) -> String {
    let mut out = String::new();
    for group in names.chunk_by(|a, b| a.prefix == b.prefix && a.number.is_some() && b.number.is_some()) {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(group[0].prefix);
        if let [only] = group {
            out.push_str(only.digits);
            continue;
        }
        out.push('[');
        render_ranges(group, &mut out);
        out.push(']');
    }
    out
}

fn render_ranges(group: &[Name<'_>], out: &mut String) {
    let mut at = 0;
    while at < group.len() {
        let mut end = at;
        while end + 1 < group.len() && group[end + 1].follows(&group[at], &group[end]) {
            end += 1;
        }
        if at > 0 {
            out.push(',');
        }
        out.push_str(group[at].digits);
        if end > at {
            out.push('-');
            out.push_str(group[end].digits);
        }
        at = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};

    use super::{HostList, HostListProblem, compress, compress_in_order, expand, is_name};
    use crate::limits::HOSTLIST_MAX;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap()
    }

    #[test]
    fn every_form_expands() {
        assert_eq!(
            names("n[001-003,7],g-[1-2]x[0-1]"),
            ["n001", "n002", "n003", "n7", "g-1x0", "g-1x1", "g-2x0", "g-2x1"]
        );
        assert_eq!(names("a,b c"), ["a", "b", "c"]);
        assert_eq!(names("n[0-10/5]-ib"), ["n0-ib", "n5-ib", "n10-ib"]);
        assert_eq!(names("[1-2]"), ["1", "2"]);
        assert_eq!(names("n[08-10]"), ["n08", "n09", "n10"]);
        assert_eq!(names("n3,n1,n3"), ["n3", "n1", "n3"]);
        assert!(names("").is_empty() && names(",, ,").is_empty());
    }

    #[test]
    fn errors_name_the_place() {
        let fail = |text: &str| {
            let e = expand(text).unwrap_err();
            (e.at, e.problem)
        };
        assert_eq!(fail("a,n[1-2"), (3, HostListProblem::Unclosed));
        assert_eq!(fail("n1]"), (2, HostListProblem::Unopened));
        assert_eq!(fail("n[1[2]]"), (3, HostListProblem::Nested));
        assert_eq!(fail("n[]"), (2, HostListProblem::EmptyRange));
        assert_eq!(fail("n[1,]"), (4, HostListProblem::EmptyRange));
        assert_eq!(fail("n[1-]"), (4, HostListProblem::EmptyRange));
        assert_eq!(fail("n[1-b]"), (4, HostListProblem::NotANumber));
        assert_eq!(fail("n[99999999999999999999]"), (2, HostListProblem::NotANumber));
        assert_eq!(fail("n[1,5-3]"), (4, HostListProblem::Backwards));
        assert_eq!(fail("n[1-3/0]"), (2, HostListProblem::ZeroStep));
        assert_eq!(expand("n[5-3]").unwrap_err().to_string(), "the range runs backwards (at character 3)");
    }

    #[test]
    fn explosions_are_refused_before_they_happen() {
        for text in [
            "n[0-18446744073709551615]",
            "n[0-999999][0-999999][0-999999]",
            "n[1-1048577]",
            "n[1-1048576],m",
            &"[0-9]".repeat(40),
        ] {
            assert_eq!(expand(text).unwrap_err().problem, HostListProblem::TooMany, "{text}");
        }
        assert_eq!(names("n[1-1048576]").len(), HOSTLIST_MAX);
        let long = format!("{}[1-1048576]", "x".repeat(1000));
        assert_eq!(expand(&long).unwrap_err().problem, HostListProblem::NameTooLong);
        let padded = format!("n[{}1]", "0".repeat(1000));
        assert_eq!(expand(&padded).unwrap_err().problem, HostListProblem::NameTooLong);
    }

    #[test]
    fn names_compress_as_slurm_writes_them() {
        let text = |list: &[&str]| compress(list);
        assert_eq!(text(&["n9", "n3", "n1", "n2", "n4", "n2"]), "n[1-4,9]");
        assert_eq!(text(&["n09", "n10", "n11", "n8"]), "n[8,09-11]");
        assert_eq!(text(&["n001", "n01", "n1"]), "n[001,01,1]");
        assert_eq!(text(&["g-1x0", "g-1x1", "g-2x0"]), "g-1x[0-1],g-2x0");
        assert_eq!(text(&["login", "n1"]), "login,n1");
        assert_eq!(text(&["n", "n1", "n2"]), "n,n[1-2]");
        assert_eq!(text(&[]), "");
        assert_eq!(compress_in_order(["n3", "n1", "n2", "m1", "n4"]), "n[3,1-2],m1,n4");
    }

    #[test]
    fn ten_thousand_names_cost_ten_bytes() {
        let list: HostList = (1..=10_080).map(|i| format!("n{i}")).collect();
        assert_eq!((list.as_str(), list.len()), ("n[1-10080]", 10_080));
        assert_eq!((list.get(0), list.get(10_079), list.get(10_080)), (Some("n1".into()), Some("n10080".into()), None));
        let bytes = crate::encoding::to_vec(&list);
        assert_eq!(bytes.len(), 11);
        assert_eq!(crate::encoding::from_slice::<HostList>(&bytes).unwrap(), list);
        assert!(crate::encoding::from_slice::<HostList>(&crate::encoding::to_vec("n[1-9999999]")).is_err());
        assert!(is_name("n1") && !is_name("n[1]") && !is_name("a,b") && !is_name("") && !is_name("a["));
    }

    /// faults.md H2
    #[test]
    fn h2_a_list_of_more_names_than_nodes_costs_nothing() {
        assert_eq!(super::expand_within("n[1-4],n[1-4]", 4).map(|names| names.len()), Ok(8));
        for text in ["n[0-1048575]", "n[0-99][0-99]", &"n1,".repeat(100_000), &"n[1-99],".repeat(100)] {
            let refused = super::expand_within(text, 4).map_err(|e| e.problem);
            assert_eq!(refused, Err(HostListProblem::TooMany), "{}", &text[..8]);
        }
        assert_eq!(super::expand_within("n[1-10080]", 10_080).map(|names| names.len()), Ok(10_080));
    }

    /// faults.md D12, in the order of Slurm 22.05.8.
    #[test]
    fn d12_three_bracket_groups() {
        let names = expand("a[1-2]b[1-2]c[1-2]").unwrap();
        assert_eq!(names.join(" "), "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2");
        assert_eq!(expand("a[1-2]b[1-2]").unwrap().join(" "), "a1b1 a1b2 a2b1 a2b2");
        assert_eq!(expand("a[1-2]b[1-2]c[1-2]d[1-2]").unwrap()[3], "a2b1c1d2");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn a_host_list_is_its_names(text in "(n\\[0?[0-3](-[4-9])?(,1[0-9])?\\]|[a-z]{1,2}[0-9]?|r\\[1-3\\]n\\[08-10\\]x)(,(n[0-9]|q\\[0-8/3\\]))*") {
            let list = HostList::try_from(text.clone()).unwrap();
            let names = expand(&text).unwrap();
            prop_assert_eq!((list.len(), &list.names()), (names.len(), &names));
            for i in 0..=names.len() {
                prop_assert_eq!(list.get(i), names.get(i).cloned(), "{} of {}", i, text);
            }
            let same: HostList = names.iter().collect();
            prop_assert_eq!(same.names(), names);
        }

        #[test]
        fn what_is_compressed_expands_to_the_same(
            list in prop::collection::vec("(n|node-|r[0-2]n|x[0-9]{1,3}y)[0-9]{0,3}|[0-9]{15,22}", 0..60)
        ) {
            let mut want: Vec<&str> = list.iter().map(String::as_str).collect();
            want.sort_unstable();
            want.dedup();
            let mut got = expand(&compress(&list)).unwrap();
            got.sort_unstable();
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(expand(&compress_in_order(&list)).unwrap(), list);
        }

        #[test]
        fn hostile_text_is_an_answer(text in any::<String>(), near in "[n0-9\\[\\],/ -]{0,40}") {
            for text in [text, near] {
                if let Ok(list) = expand(&text) {
                    prop_assert!(list.len() <= HOSTLIST_MAX);
                }
            }
        }
    }
}
