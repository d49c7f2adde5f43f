//! `scontrol show licenses`.

use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::LicenseInfo;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, record};
use squall_client::unexpected;
use squall_text::shapes::{self, AnswerKind};

const WHAT: &str = "slurm_load_licenses error";

/// Runs `scontrol show licenses`: prints the licenses with these names; without names all.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let mut licenses = match call.controller.ask(&Request::Licenses) {
        Ok(Answer::Licenses(licenses)) => licenses,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let none = licenses.is_empty();
    licenses.retain(|license| ids.is_empty() || ids.contains(&license.name));
    let text = if let Some(dialect) = manner.dialect {
        let cluster = call.cluster(WHAT)?;
        let all: Vec<serde_json::Value> = licenses.iter().map(shapes::license::license).collect();
        let command = ["scontrol", "show", "licenses"];
        document(call, dialect, &cluster, &command, AnswerKind::Licenses, vec![("licenses", all.into())])
    } else if none {
        "No licenses configured in Slurm.\n".to_owned()
    } else if let (true, [name, ..]) = (licenses.is_empty(), ids) {
        call.print(&format!("License {name} not found\n"));
        return Err(Fail(1));
    } else {
        licenses.iter().map(|license| text(license, manner)).collect()
    };
    call.print(&text);
    Ok(())
}

fn text(license: &LicenseInfo, manner: Manner) -> String {
    let counts = format!(
        "Total={} Used={} Free={} Reserved={} Remote=no",
        license.total,
        license.used,
        license.free(),
        license.reserved
    );
    let indent = if manner.oneliner { "" } else { " " };
    let lines = [format!("LicenseName={}", license.name), format!("{indent}{counts}")];
    record(manner.oneliner, &lines).replace("\n\n", "\n")
}
