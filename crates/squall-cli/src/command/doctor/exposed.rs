//! Checks for what lets users attack a cluster: paths that they can lead elsewhere, and faults of earlier builds.

use squall_files::safe_path;
use squall_host::builds::{self, Risk};

use super::{Finding, Site, ok, warn};

/// Adds the findings.
pub(super) fn look(site: &Site<'_>, findings: &mut Vec<Finding>) {
    let dir = site.place.dir();
    findings.push(match safe_path::exposure(dir) {
        Some(exposed) => {
            let text = format!("{exposed}, and with it the state folder {}", dir.display());
            warn("folders", text, "put it where only root can, as in /var/lib")
        }
        None => ok("folders", format!("no other user can replace {}", dir.display())),
    });
    let sockets = squall_rest::exposed_sockets(&site.config.rest.0);
    findings.extend(sockets.into_iter().map(|text| warn("folders", text, "then restart the HTTP server")));
    match builds::risks(site.place, &site.config) {
        Ok(risks) => findings.extend(risks.into_iter().map(|risk| of_earlier_build(risk, site))),
        Err(e) => findings.push(warn("builds", format!("{} can't be read: {e}", site.place.builds().display()), "")),
    }
}

/// Returns what could be done under a build that had a fault, and what to do now.
fn of_earlier_build(risk: Risk, site: &Site<'_>) -> Finding {
    let (text, remedy) = match risk {
        Risk::UnixSocket => (
            "it may have run with unix: in [rest] listen under a build in which users could act as others, root included \
             (attack A1 in docs/security.md)",
            "look at the jobs of root and operators, make their tokens invalid (`scontrol token revoke`), restart all \
             daemons",
        ),
        Risk::PrivateTmp => (
            "it may have run with private_tmp under a build in which a job's user could become root of the node (attack A2 in \
             docs/security.md)",
            "if a user may have done so, install the nodes anew and let them join again, restart all daemons",
        ),
    };
    let done = format!("{remedy}, and then remove the line `before` in {}", site.place.builds().display());
    warn("builds", text, done)
}
