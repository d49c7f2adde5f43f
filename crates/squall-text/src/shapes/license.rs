//! JSON of `scontrol show licenses --json`.

use serde_json::{Value, json};
use squall_model::wire::info::LicenseInfo;

/// Returns the JSON of a license.
pub fn license(license: &LicenseInfo) -> Value {
    json!({
        "LicenseName": license.name,
        "Total": license.total,
        "Used": license.used,
        "Free": license.free(),
        "Remote": false,
        "Reserved": license.reserved,
    })
}
