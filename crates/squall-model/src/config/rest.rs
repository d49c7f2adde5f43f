//! Settings of the HTTP server.

use serde::{Deserialize, Serialize};

/// User as which the HTTP server runs if root starts it and the configuration names none.
const USER: &str = "nobody";

/// Settings of the HTTP server, which serves Slurm's REST interface, metrics and the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rest {
    /// Where it listens: `HOST:PORT` or `unix:PATH`, several separated by commas. Empty: there is no HTTP server.
    pub listen: String,
    /// User as which it runs if root starts it. Empty: `nobody`.
    pub user: String,
    /// File with the server's certificate and those that lead to its authority (PEM). Empty: no TLS.
    pub certificate: String,
    /// File with the key of the certificate (PEM).
    pub certificate_key: String,
    /// File with public keys (JWKS, RFC 7517) of others that issue tokens. Empty: only tokens of the cluster are valid.
    pub jwks: String,
    /// Audience (`aud`) that tokens of others must be for. Empty: any, also those for other services.
    pub audience: String,
}

impl Rest {
    /// Returns the addresses at which the server listens.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.listen.split(',').map(str::trim).filter(|address| !address.is_empty())
    }

    /// Returns the name of the user as which the server runs if root starts it.
    pub fn user(&self) -> &str {
        if self.user.is_empty() { USER } else { &self.user }
    }

    /// Returns whether the server is configured.
    pub fn is_on(&self) -> bool {
        self.addresses().next().is_some()
    }

    /// Returns warnings about settings that work, and are not safe.
    pub fn warnings(&self) -> Vec<String> {
        let open = self.addresses().find(|address| self.certificate.is_empty() && !is_near(address));
        let open = open.map(|address| {
            format!(
                "[rest] listen: {address} is reached from other machines without TLS, so tokens can be read on the way: set \
                 `certificate`, or listen on 127.0.0.1 behind a proxy that has TLS"
            )
        });
        let any = (!self.jwks.is_empty() && self.audience.is_empty()).then(|| {
            "[rest] jwks: tokens that its issuer makes for other services are taken, too: set `audience` to this cluster's"
                .to_owned()
        });
        open.into_iter().chain(any).collect()
    }

    /// Returns what is wrong with the settings, as `(key, problem)`.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        for address in self.addresses() {
            let port = || address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
            let good = match address.strip_prefix("unix:") {
                Some(path) => path.starts_with('/'),
                None => port().is_some_and(|(host, _)| !host.is_empty()),
            };
            if !good {
                return Some(("listen", format!("`{address}` is neither HOST:PORT nor unix:/PATH")));
            }
        }
        None
    }
}

/// Whether an address is reached from this machine only.
fn is_near(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    address.starts_with("unix:")
        || host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::Rest;

    // Regression test of attack A4.
    #[test]
    fn a4_public_addresses_without_tls_are_warned_of() {
        let of = |listen: &str| Rest { listen: listen.to_owned(), ..Rest::default() };
        for near in ["127.0.0.1:6820", "localhost:1,[::1]:6820", "unix:/run/squall/rest.sock", ""] {
            assert!(of(near).warnings().is_empty(), "{near}");
        }
        for open in ["0.0.0.0:6820", "127.0.0.1:1,head:6820", "[::]:6820"] {
            assert!(of(open).warnings()[0].contains("without TLS"), "{open}");
            assert!(Rest { certificate: "c".into(), ..of(open) }.warnings().is_empty(), "{open}");
        }
        let foreign = Rest { jwks: "/etc/jwks".into(), ..Rest::default() };
        assert!(foreign.warnings()[0].contains("audience"));
        assert!(Rest { audience: "squall".into(), ..foreign }.warnings().is_empty());
    }

    fn fault(listen: &str) -> Option<String> {
        Rest { listen: listen.to_owned(), ..Rest::default() }.fault().map(|(_, problem)| problem)
    }

    #[test]
    fn addresses_are_hosts_with_ports_or_sockets() {
        assert_eq!(fault("127.0.0.1:6820, unix:/run/squall/rest.sock,[::1]:80"), None);
        for wrong in ["6820", "localhost:", ":80", "unix:here", "localhost:70000"] {
            assert_eq!(fault(wrong), Some(format!("`{wrong}` is neither HOST:PORT nor unix:/PATH")));
        }
        assert!(!Rest::default().is_on() && Rest::default().user() == "nobody");
    }
}
