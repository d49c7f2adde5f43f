//! The ports that steps reserve on their nodes (`--resv-ports`).

use serde::{Deserialize, Serialize};

/// Ports from `first` to `last`, both included. In a file `12000-12999`, or `ports=12000-12999` as in Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

impl Ports {
    /// Returns the number of ports.
    pub fn len(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Returns false: there is always at least one port.
    pub fn is_empty(self) -> bool {
        false
    }
}

impl TryFrom<String> for Ports {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let range = text.strip_prefix("ports=").unwrap_or(&text).split_once('-');
        let read = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match read {
            Some((first, last)) if 0 < first && first <= last => Ok(Self { first, last }),
            _ => Err(format!("`{text}`: a range of ports such as 12000-12999 is needed")),
        }
    }
}

impl From<Ports> for String {
    fn from(ports: Ports) -> Self {
        format!("{}-{}", ports.first, ports.last)
    }
}

#[cfg(test)]
mod tests {
    use super::Ports;

    #[test]
    fn a_range_of_ports_is_read_as_slurm_writes_it_too() {
        let read = |text: &str| Ports::try_from(text.to_owned());
        assert_eq!(read("ports=12000-12999"), Ok(Ports { first: 12000, last: 12999 }));
        assert_eq!(read("12000-12000").map(Ports::len), Ok(1));
        assert_eq!(String::from(Ports { first: 1, last: u16::MAX }), "1-65535");
        for wrong in ["", "12000", "0-9", "9-8", "1-70000", "ports=a-b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
