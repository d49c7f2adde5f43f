//! Host names of nodes that share a machine: as no name service has them, their jobs get an `/etc/hosts` that does.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::Path;

use squall_files::durable;
use squall_files::place::Place;

use crate::controld::read_config;
use crate::life;
use crate::sys::host;
use crate::trust::Trust;

/// The file in which host names are looked up first.
const HOSTS: &str = "/etc/hosts";

/// Makes the names of this node and of the others on its machine resolve, in this process and in all that it starts.
/// Needs root: without it, jobs see this machine's host name only. Must be called before there are threads.
pub(super) fn make_known(place: &Place, name: &str) {
    if !rustix::process::geteuid().is_root() || host::is_name_of_host(name) {
        return;
    }
    if let Err(e) = try_make_known(place, name) {
        tracing::warn!(error = %e, "names of nodes do not resolve in jobs here");
    }
}

fn try_make_known(place: &Place, name: &str) -> io::Result<()> {
    let names = if Trust::of(place).joined()?.is_some() {
        vec![name.to_owned()]
    } else {
        let config = read_config(place).map_err(io::Error::other)?;
        let mut names = life::real_names(&config).map_err(io::Error::other)?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        names
    };
    let known = fs::read_to_string(HOSTS)?;
    let Some(text) = with_names(&known, &names, address(place)) else { return Ok(()) };
    let path = place.hosts();
    durable::write(&path, text.as_bytes(), 0o644)?;
    host::lay_over(&[(&path, Path::new(HOSTS))])
}

/// Returns the address by which other machines reach this one, or loopback if there are no others.
fn address(place: &Place) -> IpAddr {
    let host = place.reached_as();
    let mut found =
        host.and_then(|host| (host.trim_matches(['[', ']']), 0).to_socket_addrs().ok()).into_iter().flatten();
    found.next().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |found| found.ip())
}

/// Returns the text of a hosts file with these names added. None: the file has them already.
fn with_names(known: &str, names: &[String], address: IpAddr) -> Option<String> {
    let lines = known.lines().map(|line| line.split('#').next().unwrap_or_default());
    let there: Vec<&str> = lines.flat_map(|line| line.split_whitespace().skip(1)).collect();
    let new = names.iter().filter(|name| !there.contains(&name.as_str())).map(|name| format!("{address} {name}\n"));
    let new: String = new.collect();
    (!new.is_empty()).then(|| format!("{}\n# Nodes of Squall on this machine.\n{new}", known.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::with_names;

    #[test]
    fn names_that_are_there_are_left_alone() {
        let names = ["n1", "n2"].map(str::to_owned);
        let with = |known: &str| with_names(known, &names, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let head = "127.0.0.1 localhost\n10.0.0.1 n1.site n1 # n2\n";
        let expected = format!("{head}# Nodes of Squall on this machine.\n127.0.0.1 n2\n");
        assert_eq!(with(head), Some(expected.clone()));
        assert_eq!(with(&expected), None);
    }
}
