//! `scontrol rotate keys`: new keys for the controllers.

use squall_model::duration::{format_elapsed, parse_limit};
use squall_model::wire::client::Request;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::ask_done;

const WHAT: &str = "scontrol_rotate error";
/// Time for which machines that were away still find the controllers by the key before: a week, seconds.
const GRACE_S: u64 = 7 * 86_400;

/// Runs `rotate keys [grace=TIME]`: makes new keys for the controllers.
pub(super) fn run(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let grace_s = match words {
        [what] if what.eq_ignore_ascii_case("keys") => GRACE_S,
        [what, grace] if what.eq_ignore_ascii_case("keys") => {
            let time = grace.split_once('=').filter(|(key, _)| key.eq_ignore_ascii_case("grace"));
            match time.map(|(_, time)| parse_limit(time)) {
                Some(Ok(Some(seconds))) => seconds,
                _ => {
                    return call
                        .fail(&format!("rotate keys: `{grace}` is not understood: grace=DAYS-HOURS, as grace=7-0"));
                }
            }
        }
        _ => return call.fail("what is to be rotated? `scontrol rotate keys [grace=TIME]`"),
    };
    ask_done(call, &Request::RotateKeys { grace_s, keys: None }, WHAT)?;
    call.print(&match grace_s {
        0 => "The controllers have new keys. Machines that were not connected, and all login hosts, join again with a new \
              token\n"
            .to_owned(),
        _ => format!(
            "The controllers have new keys. Machines that were not connected learn them when they call within {}; later \
             they join again with a new token\n",
            format_elapsed(grace_s)
        ),
    });
    Ok(())
}
