//! The frequency that a step asks for its CPUs: `--cpu-freq`.

/// Frequency of CPUs, in ascending order of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `low`: the lowest frequency that the CPU has.
    Low,
    /// `medium`: the one in the middle.
    Medium,
    /// `highm1`: the one below the highest.
    HighMinusOne,
    /// `high`: the highest.
    High,
    /// A number of kHz.
    Khz(u32),
}

impl Level {
    /// Reads a frequency: a name in any case, or kHz. None: malformed.
    fn parse(word: &str) -> Option<Self> {
        const NAMES: [(&str, Level); 4] =
            [("low", Level::Low), ("medium", Level::Medium), ("highm1", Level::HighMinusOne), ("high", Level::High)];
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, level)| *level);
        named.or_else(|| word.parse().ok().map(Self::Khz))
    }

    /// Returns whether both are names, or both numbers, and this one is the higher.
    fn is_above(self, other: Self) -> bool {
        matches!(self, Self::Khz(_)) == matches!(other, Self::Khz(_)) && self > other
    }
}

/// What `--cpu-freq` asks for. Attributes that are None stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frequency {
    /// The lowest frequency, or the only one if there is no highest.
    pub low: Option<Level>,
    /// The highest frequency. None: `low` is the frequency to run at.
    pub high: Option<Level>,
    /// The kernel's governor of the frequency, by its name in `/sys`.
    pub governor: Option<&'static str>,
}

/// Names of the kernel's governors.
const GOVERNORS: [&str; 6] = ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];

impl Frequency {
    /// Reads `P1[-P2[:GOVERNOR]]`, or a governor alone. The error is the line that Slurm prints.
    pub fn parse(text: &str) -> Result<Self, String> {
        let governor = |word: &str| GOVERNORS.into_iter().find(|name| name.eq_ignore_ascii_case(word));
        if let Some(governor) = governor(text) {
            return Ok(Self { governor: Some(governor), ..Self::default() });
        }
        let unknown = |word: &str| format!("unrecognized --cpu-freq argument \"{word}\"");
        let (range, named) = text.split_once(':').map_or((text, None), |(range, named)| (range, Some(named)));
        let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
        let low = Level::parse(first).ok_or_else(|| unknown(first))?;
        let governor = match (last, named) {
            (None, Some(named)) => return Err(format!("gov on cpu-frec ({named}) illegal without max")),
            (_, Some(named)) => Some(governor(named).ok_or_else(|| unknown(named))?),
            (_, None) => None,
        };
        let Some(last) = last else { return Ok(Self { low: Some(low), ..Self::default() }) };
        let high = Level::parse(last).ok_or_else(|| unknown(last))?;
        if low.is_above(high) {
            return Err(format!("min cpu-frec ({first}) must be < max cpu-freq ({last})"));
        }
        Ok(Self { low: Some(low), high: Some(high), governor })
    }
}

#[cfg(test)]
mod tests {
    use super::{Frequency, Level};

    #[test]
    fn frequencies_are_read_as_slurm_does() {
        let read = |text: &str| Frequency::parse(text).expect(text);
        assert_eq!(read("LOW"), Frequency { low: Some(Level::Low), ..Frequency::default() });
        assert_eq!(read("2000000").low, Some(Level::Khz(2_000_000)));
        assert_eq!(read("Performance"), Frequency { governor: Some("performance"), ..Frequency::default() });
        let (low, high) = (Some(Level::Low), Some(Level::HighMinusOne));
        assert_eq!(read("low-highm1:OnDemand"), Frequency { low, high, governor: Some("ondemand") });
        assert_eq!(read("1-high").high, Some(Level::High));
        for (text, line) in [
            ("foo", "unrecognized --cpu-freq argument \"foo\""),
            ("high-low", "min cpu-frec (high) must be < max cpu-freq (low)"),
            ("1:foo", "gov on cpu-frec (foo) illegal without max"),
            ("1-2:foo", "unrecognized --cpu-freq argument \"foo\""),
            ("2-1", "min cpu-frec (2) must be < max cpu-freq (1)"),
        ] {
            assert_eq!(Frequency::parse(text), Err(line.to_owned()), "{text}");
        }
    }
}
