//! PMI version 1: a line for each message, `cmd=NAME key=value …`.

use super::{Acts, KEY_MAX, Naming, Pmi, PmiAct, VALUE_MAX, Version};

/// Removes the next line from the bytes received; None: it is not complete.
pub(super) fn take(unread: &mut Vec<u8>) -> Result<Option<String>, String> {
    let Some(end) = unread.iter().position(|&b| b == b'\n') else { return Ok(None) };
    let line: Vec<u8> = unread.drain(..=end).collect();
    let line = String::from_utf8(line).map_err(|_| "bytes that are no text".to_owned())?;
    Ok(Some(line.trim().to_owned()))
}

pub(super) fn barrier_out(well: bool) -> Vec<u8> {
    if well { b"cmd=barrier_out\n".to_vec() } else { b"cmd=barrier_out rc=-1 msg=not_all_came\n".to_vec() }
}

/// Makes the message that tells a task the answer of the board of published names.
pub(super) fn named(naming: &Naming, result: Result<Option<&str>, ()>) -> Vec<u8> {
    let what = match naming {
        Naming::Publish { .. } => "publish",
        Naming::Unpublish(_) => "unpublish",
        Naming::Lookup(_) => "lookup",
    };
    let port = result.ok().flatten().map(|port| format!(" port={port}")).unwrap_or_default();
    let how = if result.is_ok() { "info=ok rc=0 msg=success" } else { "info=failed rc=-1 msg=no_such_name_or_taken" };
    format!("cmd={what}_result {how}{port}\n").into_bytes()
}

/// Returns the value of a field. The field `value` reaches to the end of the line and may hold any text.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let at = line.match_indices(name).map(|(at, _)| at).find(|&at| {
        (at == 0 || line.as_bytes()[at - 1] == b' ') && line.as_bytes().get(at + name.len()) == Some(&b'=')
    })?;
    let rest = &line[at + name.len() + 1..];
    Some(if name == "value" { rest } else { rest.split(' ').next().unwrap_or_default() })
}

impl Pmi {
    /// Handles one line of a task and answers it.
    pub(super) fn one(&mut self, rank: u32, line: &str, out: &mut Acts) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        let (size, name) = (self.size, &self.name);
        let answer = match field(line, "cmd").unwrap_or(line) {
            "init" => return self.greet(rank, line, out),
            "get_maxes" => {
                format!("cmd=maxes rc=0 kvsname_max=256 keylen_max={KEY_MAX} vallen_max={VALUE_MAX}")
            }
            "get_appnum" => "cmd=appnum rc=0 appnum=0".to_owned(),
            "get_my_kvsname" => format!("cmd=my_kvsname rc=0 kvsname={name}"),
            "get_universe_size" => format!("cmd=universe_size rc=0 size={size}"),
            "get_ranks2hosts" => "cmd=put_ranks2hosts 0 0".to_owned(),
            "put" => {
                let (key, value) = (field(line, "key"), field(line, "value"));
                self.put(key.ok_or_else(|| line.to_owned())?, value.unwrap_or_default());
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "get" => match field(line, "key").and_then(|key| self.keys.get(key)) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            "barrier_in" => {
                self.barrier(rank, out);
                return Ok(());
            }
            "finalize" => {
                self.finalized(rank, out);
                "cmd=finalize_ack rc=0".to_owned()
            }
            "abort" => {
                let code = field(line, "exitcode").and_then(|code| code.parse().ok()).unwrap_or(1);
                out.push(PmiAct::Abort { rank, code, text: String::new() });
                return Ok(());
            }
            command @ ("publish_name" | "unpublish_name" | "lookup_name") => {
                let get = |name| field(line, name).map(ToOwned::to_owned).ok_or_else(|| line.to_owned());
                let service = get("service")?;
                let naming = match command {
                    "publish_name" => Naming::Publish { service, port: get("port")? },
                    "unpublish_name" => Naming::Unpublish(service),
                    _ => Naming::Lookup(service),
                };
                self.name(rank, naming, None, out);
                return Ok(());
            }
            // Last line of `mcmd=spawn`.
            "endcmd" => {
                out.push(PmiAct::Spawn(rank));
                "cmd=spawn_result rc=-1 status=not_supported".to_owned()
            }
            _ if field(line, "cmd").is_none() => return Ok(()),
            _ => return Err(line.to_owned()),
        };
        out.push(PmiAct::Send { rank, bytes: format!("{answer}\n").into_bytes() });
        Ok(())
    }

    /// Handles a task's greeting, which has the form of version 1 in both versions.
    fn greet(&mut self, rank: u32, line: &str, out: &mut Acts) -> Result<(), String> {
        let two = match field(line, "pmi_version") {
            Some("1") => false,
            Some("2") => true,
            _ => return Err(line.to_owned()),
        };
        self.greeted(rank, out);
        if let Some(client) = self.clients.get_mut(&rank).filter(|_| two) {
            client.version = Version::Two;
        }
        let (version, sub) = if two { (2, 0) } else { (1, 1) };
        let answer = format!("cmd=response_to_init rc=0 pmi_version={version} pmi_subversion={sub}\n");
        out.push(PmiAct::Send { rank, bytes: answer.into_bytes() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_of_a_line() {
        let line = "cmd=put kvsname=7.0 key=business-card value=a=b c=d";
        assert_eq!(field(line, "key"), Some("business-card"));
        assert_eq!(field(line, "value"), Some("a=b c=d"));
        assert_eq!(field(line, "name"), None);
    }
}
