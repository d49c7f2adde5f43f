//! The builds that have served a cluster on this machine, in `DIR/builds`: a line `BUILD OPTION,OPTION` for each, with the
//! options by which the cluster may have been attacked under a build with a fault. A state folder that is older than this
//! file begins with the line `before`: builds without it had the faults A1 and A2 of docs/security.md.

use std::io;

use squall_files::durable;
use squall_files::place::Place;
use squall_model::config::Config;

/// First word of the line of all builds that did not write this file.
const BEFORE: &str = "before";

/// An option that was dangerous under an earlier build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// `unix:` in `listen` of `[rest]`: any user could act as whoever connected to a socket of theirs (A1).
    UnixSocket,
    /// `private_tmp`: any user with a job could become root of its node (A2).
    PrivateTmp,
}

impl Risk {
    const ALL: [Self; 2] = [Self::UnixSocket, Self::PrivateTmp];

    fn word(self) -> &'static str {
        match self {
            Self::UnixSocket => "unix",
            Self::PrivateTmp => "private_tmp",
        }
    }

    fn is_in(self, config: &Config) -> bool {
        match self {
            Self::UnixSocket => config.rest.0.addresses().any(|address| address.starts_with("unix:")),
            Self::PrivateTmp => !config.private_tmp.is_empty(),
        }
    }
}

/// Notes that this build serves the cluster with this configuration. `older`: the state folder was in use before. An error
/// is logged.
pub(crate) fn note(place: &Place, config: &Config, older: bool) {
    if let Err(e) = try_note(place, config, older) {
        tracing::warn!(file = %place.builds().display(), error = %e, "the build can't be noted");
    }
}

fn try_note(place: &Place, config: &Config, older: bool) -> io::Result<()> {
    let path = place.builds();
    let before = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let risks = words(&risks_before(place, config));
            if older { format!("{BEFORE} {risks}\n") } else { String::new() }
        }
        text => text?,
    };
    let risks: Vec<Risk> = Risk::ALL.into_iter().filter(|risk| risk.is_in(config)).collect();
    let line = format!("{} {}", env!("CARGO_PKG_VERSION"), words(&risks));
    if before.lines().next_back() == Some(&line) {
        return Ok(());
    }
    durable::write(&path, format!("{before}{line}\n").as_bytes(), 0o644)
}

/// Returns the dangerous options with which the cluster ran under builds that had the faults. `config`: that of today.
pub fn risks(place: &Place, config: &Config) -> io::Result<Vec<Risk>> {
    let text = match std::fs::read_to_string(place.builds()) {
        // No build with this file has served it yet.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(if place.mark().exists() { risks_before(place, config) } else { Vec::new() });
        }
        text => text?,
    };
    let before = text.lines().find_map(|line| line.strip_prefix(BEFORE)).unwrap_or_default();
    let named = |risk: &Risk| before.trim().split(',').any(|word| word == risk.word());
    Ok(Risk::ALL.into_iter().filter(named).collect())
}

/// Returns the options of the configuration and of the one before it, as `squall up --config` keeps it.
fn risks_before(place: &Place, config: &Config) -> Vec<Risk> {
    let old = std::fs::read_to_string(place.config().with_extension("toml.old")).unwrap_or_default();
    let old = Config::from_toml(&old).unwrap_or_default();
    Risk::ALL.into_iter().filter(|risk| risk.is_in(config) || risk.is_in(&old)).collect()
}

fn words(risks: &[Risk]) -> String {
    let words: Vec<&str> = risks.iter().map(|risk| risk.word()).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

#[cfg(test)]
mod tests {
    use squall_files::place::Place;
    use squall_model::config::Config;

    use super::{Risk, note, risks};

    #[test]
    fn a_state_of_an_earlier_build_is_known_by_what_it_lacks() {
        let dir = std::env::temp_dir().join(format!("squall-builds-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let place = Place::at(&dir).unwrap();
        let private = Config::from_toml("private_tmp = \"/var/lib/jobs\"\n").unwrap();
        let plain = Config::default();
        // A new cluster has never run under an earlier build, whatever its options.
        assert_eq!(risks(&place, &private).unwrap(), []);
        note(&place, &private, false);
        assert_eq!(risks(&place, &private).unwrap(), []);
        std::fs::remove_file(place.builds()).unwrap();
        // One of an earlier build, not started since; then started, with another configuration before and after.
        std::fs::write(place.mark(), "").unwrap();
        assert_eq!(risks(&place, &private).unwrap(), [Risk::PrivateTmp]);
        let old = "[rest]\nlisten = \"127.0.0.1:1,unix:/run/squall/rest.sock\"\n";
        std::fs::write(place.config().with_extension("toml.old"), old).unwrap();
        note(&place, &private, true);
        note(&place, &plain, true);
        note(&place, &plain, true);
        assert_eq!(risks(&place, &plain).unwrap(), [Risk::UnixSocket, Risk::PrivateTmp]);
        assert_eq!(std::fs::read_to_string(place.builds()).unwrap().lines().count(), 3);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
