//! PMI version 2: six digits of length, then `cmd=NAME;key=value;…` with `;;` for a semicolon within a value.

use super::{Acts, Naming, Pmi, PmiAct};

/// Removes the next message from the bytes received; None: it is not complete.
pub(super) fn take(unread: &mut Vec<u8>) -> Result<Option<String>, String> {
    let Some(head) = unread.get(..6) else { return Ok(None) };
    let length = std::str::from_utf8(head).ok().and_then(|head| head.trim().parse::<usize>().ok());
    let length = length.ok_or_else(|| String::from_utf8_lossy(head).into_owned())?;
    if unread.len() < 6 + length {
        return Ok(None);
    }
    let message: Vec<u8> = unread.drain(..6 + length).skip(6).collect();
    String::from_utf8(message).map(Some).map_err(|_| "bytes that are no text".to_owned())
}

pub(super) fn fence_response(well: bool, thread: Option<&str>) -> Vec<u8> {
    message("kvs-fence", thread, &[("rc", if well { "0" } else { "1" })])
}

/// Makes the message that tells a task the answer of the board of published names.
pub(super) fn named(naming: &Naming, result: Result<Option<&str>, ()>, thread: Option<&str>) -> Vec<u8> {
    let command = match naming {
        Naming::Publish { .. } => "name-publish",
        Naming::Unpublish(_) => "name-unpublish",
        Naming::Lookup(_) => "name-lookup",
    };
    let mut fields = vec![("rc", if result.is_ok() { "0" } else { "1" })];
    match result {
        Ok(port) => fields.extend(port.into_iter().flat_map(|port| [("value", port), ("port", port)])),
        Err(()) => fields.push(("errmsg", "no such name, or taken")),
    }
    message(command, thread, &fields)
}

fn message(command: &str, thread: Option<&str>, fields: &[(&str, &str)]) -> Vec<u8> {
    let thread = thread.map(|thread| format!("thrid={thread};")).unwrap_or_default();
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={};", value.replace(';', ";;"))).collect();
    let body = format!("cmd={command}-response;{thread}{}", fields.concat());
    format!("{:6}{body}", body.len()).into_bytes()
}

/// Splits a message into names and values.
fn fields(body: &str) -> Vec<(String, String)> {
    let mut parts: Vec<String> = vec![String::new()];
    let mut letters = body.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ';' if letters.next_if_eq(&';').is_some() => parts.last_mut().into_iter().for_each(|p| p.push(';')),
            ';' => parts.push(String::new()),
            other => parts.last_mut().into_iter().for_each(|p| p.push(other)),
        }
    }
    parts.iter().filter_map(|part| part.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

impl Pmi {
    /// Handles one message of a task and answers it.
    pub(super) fn two(&mut self, rank: u32, body: &str, out: &mut Acts) -> Result<(), String> {
        let fields = fields(body);
        let get = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let command = get("cmd").ok_or_else(|| body.to_owned())?;
        let thread = get("thrid");
        let key = get("key").unwrap_or_default();
        let found = |value: Option<&String>| match value {
            Some(value) => vec![("flag", "TRUE".to_owned()), ("value", value.clone()), ("rc", "0".to_owned())],
            None => vec![("flag", "FALSE".to_owned()), ("rc", "0".to_owned())],
        };
        let well = || vec![("rc", "0".to_owned())];
        let answer: Vec<(&str, String)> = match command {
            "fullinit" => self.greeting(rank),
            "job-getid" => vec![("jobid", self.name.clone()), ("rc", "0".to_owned())],
            "kvs-put" => {
                self.put(key, get("value").unwrap_or_default());
                well()
            }
            "kvs-get" | "info-getjobattr" => found(self.keys.get(key)),
            "kvs-fence" => {
                if let Some(client) = self.clients.get_mut(&rank) {
                    client.thread = thread.map(ToOwned::to_owned);
                }
                self.barrier(rank, out);
                return Ok(());
            }
            "info-putnodeattr" => {
                self.put_for_node(key, get("value").unwrap_or_default(), out);
                well()
            }
            "info-getnodeattr" => {
                let value = self.node_keys.get(key);
                if value.is_none() && get("wait") == Some("TRUE") {
                    self.node_waits.push((rank, key.to_owned(), thread.map(ToOwned::to_owned)));
                    return Ok(());
                }
                found(value)
            }
            "finalize" => {
                self.finalized(rank, out);
                well()
            }
            "abort" => {
                let text = get("msg").unwrap_or_default().to_owned();
                out.push(PmiAct::Abort { rank, code: 1, text });
                return Ok(());
            }
            "spawn" => {
                out.push(PmiAct::Spawn(rank));
                vec![("rc", "1".to_owned()), ("errmsg", "not supported".to_owned())]
            }
            "name-publish" | "name-unpublish" | "name-lookup" => {
                let service = get("name").ok_or_else(|| body.to_owned())?.to_owned();
                let naming = match command {
                    "name-publish" => Naming::Publish { service, port: get("port").unwrap_or_default().to_owned() },
                    "name-unpublish" => Naming::Unpublish(service),
                    _ => Naming::Lookup(service),
                };
                self.name(rank, naming, thread, out);
                return Ok(());
            }
            "job-connect" | "job-disconnect" => {
                vec![("rc", "1".to_owned()), ("errmsg", "not supported".to_owned())]
            }
            _ => return Err(body.to_owned()),
        };
        let answer: Vec<(&str, &str)> = answer.iter().map(|(name, value)| (*name, value.as_str())).collect();
        out.push(PmiAct::Send { rank, bytes: message(command, thread, &answer) });
        Ok(())
    }

    fn greeting(&self, rank: u32) -> Vec<(&'static str, String)> {
        vec![
            ("pmi-version", "2".to_owned()),
            ("pmi-subversion", "0".to_owned()),
            ("rank", rank.to_string()),
            ("size", self.size.to_string()),
            ("appnum", "0".to_owned()),
            ("debugged", "FALSE".to_owned()),
            ("pmiverbose", "FALSE".to_owned()),
            ("rc", "0".to_owned()),
        ]
    }

    fn put_for_node(&mut self, key: &str, value: &str, out: &mut Acts) {
        self.node_keys.insert(key.to_owned(), value.to_owned());
        let waits = std::mem::take(&mut self.node_waits);
        for (rank, wanted, thread) in waits {
            if wanted == key {
                let fields = [("flag", "TRUE"), ("value", value), ("rc", "0")];
                let bytes = message("info-getnodeattr", thread.as_deref(), &fields);
                out.push(PmiAct::Send { rank, bytes });
            } else {
                self.node_waits.push((rank, wanted, thread));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{fields, take};

    #[test]
    fn messages_are_framed_and_escaped() {
        let mut unread = b"    17cmd=x;value=a;;b;    12".to_vec();
        assert_eq!(take(&mut unread), Ok(Some("cmd=x;value=a;;b;".into())));
        assert_eq!(take(&mut unread), Ok(None));
        assert_eq!(fields("cmd=x;value=a;;b;"), [("cmd".into(), "x".into()), ("value".into(), "a;b".into())]);
    }
}
