//! `scontrol upgrade`: raises the version of the cluster.

use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Request};

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::ask_done;
use squall_client::unexpected;

const WHAT: &str = "scontrol_upgrade error";

/// Runs `upgrade [VERSION]`: raises the version of the cluster to this one, or to the newest that the controller can
/// work with.
pub(super) fn run(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let to = match words {
        [] => None,
        [word] => match word.parse() {
            Ok(number) => Some(ClusterVersion(number)),
            Err(_) => return call.fail(&format!("upgrade: {word} is no number of a version of the cluster")),
        },
        _ => {
            call.say("too many arguments for keyword:upgrade");
            return Err(Fail(1));
        }
    };
    ask_done(call, &Request::RaiseVersion { to, others: Vec::new() }, WHAT)?;
    match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { cluster_version, .. }) => call.print(&format!("the cluster has version {cluster_version}\n")),
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    }
    Ok(())
}
