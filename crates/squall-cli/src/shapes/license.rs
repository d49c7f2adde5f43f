//! JSON of `scontrol show licenses --json`.

use serde_json::{Value, json};
use squall_model::wire::info::LicenseInfo;

use crate::command::scontrol::license::free;

/// Returns the JSON of a license.
pub(crate) fn license(license: &LicenseInfo) -> Value {
    json!({
        "LicenseName": license.name,
        "Total": license.total,
        "Used": license.used,
        "Free": free(license),
        "Remote": false,
        "Reserved": license.reserved,
    })
}
