//! Option `MsgAggregationParams`: how reports of node daemons are combined on their way to the controller.

use serde::{Deserialize, Serialize};

use crate::wire::fabric::Window;

/// `WindowMsgs=N,WindowTime=MS`, as in Slurm: most reports in one message, and longest delay of a report in
/// milliseconds. An omitted part keeps its default (1024 and 100). `WindowMsgs=1` turns aggregation off: each report is
/// a message of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Aggregation(pub Window);

impl TryFrom<String> for Aggregation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut window = Window::default();
        for word in text.split(',').filter(|word| !word.trim().is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = value.trim().parse().ok().filter(|number| *number > 0);
            let number = number.ok_or_else(|| format!("`{word}`: a number above 0 is needed"))?;
            match name.trim().to_ascii_lowercase().as_str() {
                "windowmsgs" => window.messages = number,
                "windowtime" => window.time_ms = number,
                _ => return Err(format!("`{word}`: only WindowMsgs=N and WindowTime=MS are known")),
            }
        }
        Ok(Self(window))
    }
}

impl From<Aggregation> for String {
    fn from(Aggregation(window): Aggregation) -> Self {
        format!("WindowMsgs={},WindowTime={}", window.messages, window.time_ms)
    }
}
