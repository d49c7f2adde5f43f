//! `scontrol token`: prints a token for the HTTP interface, or revokes tokens.

use squall_model::wire::client::{Answer, HostRequest};

use super::host_done;
use crate::command::listing::call::{Call, Fail};

/// Life of a token without `lifespan=`, seconds (Slurm's default).
const LIFESPAN_S: u64 = 1800;
const TOKEN: &str = "slurm_auth_token error";

/// Runs `token [revoke] [lifespan=SECONDS|infinite] [username=NAME]`.
pub(super) fn run(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let (mut user, mut lifespan_s, mut revoke) = (None, Some(LIFESPAN_S), false);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match (key.to_lowercase().as_str(), value) {
            ("revoke", "") => revoke = true,
            ("username", name) if !name.is_empty() => user = Some(name.to_owned()),
            ("lifespan", span) if span.eq_ignore_ascii_case("infinite") => lifespan_s = None,
            ("lifespan", span) => match span.parse().ok().filter(|span| *span > 0) {
                Some(seconds) => lifespan_s = Some(seconds),
                None => return call.fail(&format!("Invalid lifespan: `{span}` is neither seconds nor infinite")),
            },
            _ => return call.fail(&format!("Invalid argument: {word}")),
        }
    }
    if revoke {
        return host_done(call, &HostRequest::RevokeTokens { user }, TOKEN);
    }
    match call.controller.ask_host(&HostRequest::Token { user, lifespan_s, link: false }) {
        Ok(Answer::Token(token)) => {
            call.print(&format!("SLURM_JWT={token}\n"));
            Ok(())
        }
        Ok(_) => call.failed(TOKEN, &squall_client::unexpected()),
        Err(e) => call.failed(TOKEN, &e),
    }
}
