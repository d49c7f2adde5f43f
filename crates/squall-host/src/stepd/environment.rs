//! The environment of a task: the user's variables, overlaid by Squall's.

use std::ffi::CString;
use std::path::Path;

use squall_engine::environment::{Env, default_env, job_env, step_env, task_env};
use squall_files::place::TASK_MARK;
use squall_files::place::{Place, STATE_VARIABLE};
use squall_model::step::StepLaunch;

use crate::sys::spawn::PID_ROOM;

/// Value of `PATH` if the user's environment has none.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Environment variables in order; each name once.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment(Vec<CString>);

impl Environment {
    /// Parses entries `KEY=VALUE`, each ended by NUL. Entries without a name, or with a name given before, are ignored.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut env = Self::default();
        for entry in bytes.split(|&b| b == 0) {
            let Some(at) = entry.iter().position(|&b| b == b'=') else { continue };
            // An entry between two NULs contains none.
            if at > 0 && env.find(&entry[..at]).is_none() {
                env.0.extend(CString::new(entry));
            }
        }
        env
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        // Checking for `=` at the name's end first rejects nearly all entries at once.
        let named = |entry: &[u8]| entry.get(name.len()) == Some(&b'=') && entry.starts_with(name);
        self.0.iter().position(|entry| named(entry.as_bytes()))
    }

    /// Returns the value of a variable; None: the variable is not set.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.find(name.as_bytes()).map(|at| &self.0[at].as_bytes()[name.len() + 1..])
    }

    /// Returns the variables with names that begin with `beginning`.
    pub(super) fn beginning(&self, beginning: &str) -> Vec<(String, String)> {
        let texts = self.0.iter().filter_map(|entry| entry.to_str().ok()).filter(|entry| entry.starts_with(beginning));
        texts.filter_map(|entry| entry.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// Sets a variable, unless the value contains a NUL byte; returns its index.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<usize> {
        // The capacity includes the NUL byte, to avoid reallocation: there are dozens of entries for each task.
        let mut entry = Vec::with_capacity(name.len() + value.len() + 2);
        entry.extend_from_slice(name.as_bytes());
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        let entry = CString::new(entry).ok()?;
        let at = self.find(name.as_bytes()).unwrap_or(self.0.len());
        if at < self.0.len() {
            self.0[at] = entry;
        } else {
            self.0.push(entry);
        }
        Some(at)
    }

    /// Removes a variable.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(at) = self.find(name.as_bytes()) {
            self.0.remove(at);
        }
    }

    /// Sets or (None) removes a variable with any bytes; one with a NUL byte is left as it is.
    pub(super) fn change(&mut self, name: &[u8], value: Option<&[u8]>) {
        let at = self.find(name);
        let Some(value) = value else {
            if let Some(at) = at {
                self.0.remove(at);
            }
            return;
        };
        match (CString::new([name, b"=", value].concat()), at) {
            (Ok(entry), Some(at)) => self.0[at] = entry,
            (Ok(entry), None) => self.0.push(entry),
            (Err(_), _) => {}
        }
    }

    /// Sets a variable, unless it is set already.
    pub(super) fn set_default(&mut self, name: &str, value: &str) {
        if self.find(name.as_bytes()).is_none() {
            self.set(name, value);
        }
    }

    /// Copies the variables of `other` that are not set here.
    pub(super) fn complete(&mut self, other: &Self) {
        for entry in &other.0 {
            let name = entry.as_bytes().split(|&b| b == b'=').next().unwrap_or_default();
            if self.find(name).is_none() {
                self.0.push(entry.clone());
            }
        }
    }

    /// Returns the entries, for exec.
    pub(super) fn entries(&self) -> &[CString] {
        &self.0
    }

    /// Sets all variables of `over`.
    pub(super) fn lay(&mut self, over: Env) {
        for (name, value) in over {
            self.set(&name, &value);
        }
    }

    /// Returns the environment shared by all tasks of a step on this node. `spool`, the step's folder, marks them as
    /// the step's.
    pub(super) fn for_step(mut self, launch: &StepLaunch, spool: &str) -> Self {
        for (name, value) in default_env() {
            self.set_default(&name, &value);
        }
        self.set_default("PATH", DEFAULT_PATH);
        if launch.is_inside() {
            // MPICH's UCX would use memory of System V, which no checkpoint can contain.
            self.set_default("UCX_TLS", "^sysv");
        }
        self.lay(job_env(&launch.facts));
        self.lay(step_env(launch));
        self.set(TASK_MARK, spool);
        // Commands of the job use the cluster that runs it, wherever it was submitted.
        if let Some(place) = Place::of_step(Path::new(spool)) {
            self.set(STATE_VARIABLE, &place.for_jobs().dir().to_string_lossy());
        }
        self
    }

    /// Returns the environment of one task, and the index of the entry into which the task's process id has to be
    /// inserted.
    pub(super) fn for_task(mut self, launch: &StepLaunch, local: u32, rank: u32) -> (Self, Option<usize>) {
        self.lay(task_env(launch, local, rank, None));
        let at = self.set("SLURM_TASK_PID", PID_ROOM);
        (self, at)
    }
}

#[cfg(test)]
mod tests {
    use super::Environment;

    #[test]
    fn cve_2026_65108_variables_may_be_long_and_many() {
        let long = format!("{}={}\0", "N".repeat(1 << 20), "v".repeat(1 << 20));
        let many = (0..5000).map(|n| format!("A{n}=b\0")).collect::<Vec<_>>().concat();
        let mut env = Environment::parse(format!("{long}{many}").as_bytes());
        assert_eq!(env.entries().len(), 5001);
        env.set(&"M".repeat(1 << 20), "x");
        assert_eq!(env.get(&"N".repeat(1 << 20)).map(<[u8]>::len), Some(1 << 20));
    }

    #[test]
    fn names_are_set_once_and_odd_entries_left_out() {
        let mut env = Environment::parse(b"A=1\0B=\0A=2\0=x\0junk\0AB=c=d\0");
        assert_eq!(env.get("A"), Some(&b"1"[..]));
        assert_eq!(env.get("AB"), Some(&b"c=d"[..]));
        assert_eq!(env.entries().len(), 3);
        env.set("A", "9");
        env.set_default("B", "no");
        env.set_default("C", "yes");
        assert_eq!((env.get("A"), env.get("B"), env.get("C")), (Some(&b"9"[..]), Some(&b""[..]), Some(&b"yes"[..])));
        assert_eq!(env.set("D", "nul\0inside"), None);
        let mut less = Environment::parse(b"A=mine\0");
        less.complete(&env);
        assert_eq!((less.get("A"), less.get("C")), (Some(&b"mine"[..]), Some(&b"yes"[..])));
    }
}
