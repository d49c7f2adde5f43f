//! What plugins are told, and what they have changed: the state behind the functions of SPANK.

use std::ffi::{CStr, CString, c_char, c_int};

use squall_text::format::words::slurm_version;

use crate::plugins::words::{Context, Items};

/// Error codes of SPANK.
pub(super) mod code {
    use std::ffi::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const ERROR: c_int = 3000;
    pub(crate) const BAD_ARG: c_int = 3001;
    pub(crate) const NOT_TASK: c_int = 3002;
    pub(crate) const ENV_EXISTS: c_int = 3003;
    pub(crate) const ENV_NOEXIST: c_int = 3004;
    pub(crate) const NOSPACE: c_int = 3005;
    pub(crate) const NOT_REMOTE: c_int = 3006;
    pub(crate) const NOEXIST: c_int = 3007;
    pub(crate) const NOT_EXECD: c_int = 3008;
    pub(crate) const NOT_AVAIL: c_int = 3009;
    pub(crate) const NOT_LOCAL: c_int = 3010;
}

/// Numbers of items in `slurm/spank.h`.
mod item {
    use std::ffi::c_int;

    pub(super) const UID: c_int = 0;
    pub(super) const GID: c_int = 1;
    pub(super) const JOB: c_int = 2;
    pub(super) const STEP: c_int = 3;
    pub(super) const NODES: c_int = 4;
    pub(super) const NODE: c_int = 5;
    pub(super) const TASKS_HERE: c_int = 6;
    pub(super) const TASKS: c_int = 7;
    pub(super) const CPUS: c_int = 8;
    pub(super) const ARGV: c_int = 9;
    pub(super) const ENV: c_int = 10;
    pub(super) const TASK: c_int = 11;
    pub(super) const TASK_RANK: c_int = 12;
    pub(super) const TASK_PID: c_int = 14;
    pub(super) const PID_TO_RANK: c_int = 15;
    pub(super) const PID_TO_TASK: c_int = 16;
    pub(super) const TASK_TO_RANK: c_int = 17;
    pub(super) const RANK_TO_TASK: c_int = 18;
    pub(super) const GROUPS: c_int = 19;
    pub(super) const VERSION: c_int = 20;
    pub(super) const MICRO: c_int = 23;
    pub(super) const CPUS_PER_TASK: c_int = 24;
    pub(super) const JOB_CORES: c_int = 25;
    pub(super) const JOB_MEMORY: c_int = 26;
    pub(super) const STEP_CORES: c_int = 27;
    pub(super) const STEP_MEMORY: c_int = 28;
    pub(super) const RESTARTS: c_int = 29;
    pub(super) const ARRAY: c_int = 30;
    pub(super) const ARRAY_TASK: c_int = 31;
}

/// Function of a plugin that gets the value of an option: number, value, and whether it is called beside a step.
pub(super) type OptionFn = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;

/// An option that a plugin has registered.
#[derive(Clone, Debug)]
pub(crate) struct PluginOption {
    /// Number of the plugin.
    pub(crate) plugin: usize,
    /// Long name, without dashes.
    pub(crate) name: CString,
    /// Name of the value in the help.
    pub(crate) value_name: CString,
    /// Text of the help.
    pub(crate) usage: CString,
    /// Whether it takes a value: 0: no; 1: yes; 2: perhaps.
    pub(crate) has_arg: c_int,
    pub(super) val: c_int,
    pub(super) call: Option<OptionFn>,
    /// The value that the user gave. None: the user has not given the option.
    pub(crate) given: Option<CString>,
}

impl PluginOption {
    /// Returns an option that was found in a variable around a job, with its value.
    pub(crate) fn found(plugin: usize, name: CString, given: CString) -> Self {
        let (value_name, usage) = (CString::default(), CString::default());
        Self { plugin, name, value_name, usage, has_arg: 2, val: 0, call: None, given: Some(given) }
    }
}

/// The task of which a hook runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// Number of the task on this node.
    pub(crate) local: u32,
    /// Rank of the task.
    pub(crate) rank: u32,
    /// Its process id.
    pub(crate) pid: u32,
    /// Its status, as of wait(2). None: it runs.
    pub(crate) status: Option<i32>,
}

/// All that plugins of this process ask for and change.
#[derive(Debug)]
pub(crate) struct Session {
    /// Where the plugins are loaded.
    pub(crate) context: Context,
    /// Number of the plugin that runs.
    pub(crate) plugin: usize,
    /// Whether options may be registered now.
    pub(crate) registers: bool,
    /// Facts about job and step. None: there is no job yet.
    pub(crate) items: Option<Items>,
    /// The environment of the job or task, `NAME=VALUE` each.
    pub(crate) env: Vec<CString>,
    /// Variables for the site's prologs and epilogs.
    pub(crate) control: Vec<CString>,
    /// The job's command.
    pub(crate) argv: Vec<CString>,
    /// The task of which a hook runs. None: the hook is not about a task.
    pub(crate) task: Option<Task>,
    /// Tasks that have started: process id, number on this node, rank.
    pub(crate) started: Vec<(u32, u32, u32)>,
    /// Options of all plugins.
    pub(crate) options: Vec<PluginOption>,
    /// Words that plugins put before the task's command.
    pub(crate) before: Vec<CString>,
    /// What `S_JOB_ENV` and `S_JOB_ARGV` have shown last: the texts, and their addresses.
    shown: [(Vec<CString>, Vec<usize>); 2],
    texts: Vec<CString>,
}

/// The answer to `spank_get_item`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Number(u32),
    Signed(i32),
    Short(u16),
    Long(u64),
    /// Address of a text.
    Text(usize),
    /// Number and address of an array of texts.
    Texts(usize, usize),
    /// Number and address of groups.
    Groups(usize, usize),
}

type Answered<T> = Result<T, c_int>;

impl Session {
    pub(super) const fn new() -> Self {
        Self {
            context: Context::Local,
            plugin: 0,
            registers: false,
            items: None,
            env: Vec::new(),
            control: Vec::new(),
            argv: Vec::new(),
            task: None,
            started: Vec::new(),
            options: Vec::new(),
            before: Vec::new(),
            shown: [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())],
            texts: Vec::new(),
        }
    }

    pub(super) fn item(&mut self, item: c_int, number: u32) -> Answered<Answer> {
        let around_job = matches!(item, item::UID | item::GID | item::JOB);
        match item {
            item::VERSION..=item::MICRO => return Ok(self.version((item - item::VERSION) as usize)),
            _ if self.context == Context::Slurmd => return Err(code::NOT_AVAIL),
            _ if self.context == Context::JobScript && !around_job => return Err(code::NOT_AVAIL),
            item::TASK..=item::TASK_PID => return self.of_task(item),
            item::ENV if self.context == Context::Remote => return Ok(self.show(0)),
            item::ARGV if self.items.is_some() => return Ok(self.show(1)),
            _ => {}
        }
        let remote = self.context == Context::Remote;
        let items = self.items.as_ref().ok_or(code::NOT_REMOTE)?;
        let everywhere =
            matches!(item, item::UID | item::GID | item::JOB | item::STEP | item::NODES | item::TASKS | item::GROUPS);
        if !(remote || everywhere) {
            return Err(code::NOT_REMOTE);
        }
        Ok(match item {
            item::UID => Answer::Number(items.uid),
            item::GID => Answer::Number(items.gid),
            item::JOB => Answer::Number(items.job),
            item::STEP => Answer::Number(items.step),
            item::NODES => Answer::Number(items.nodes),
            item::NODE => Answer::Number(items.node),
            item::TASKS_HERE => Answer::Number(items.ranks.len() as u32),
            item::TASKS => Answer::Number(items.tasks),
            item::CPUS => Answer::Short(u16::try_from(items.cpus).unwrap_or(u16::MAX)),
            item::PID_TO_RANK | item::PID_TO_TASK => {
                if self.started.is_empty() {
                    return Err(code::NOT_EXECD);
                }
                let found = self.started.iter().find(|(pid, ..)| *pid == number).ok_or(code::NOEXIST)?;
                Answer::Number(if item == item::PID_TO_RANK { found.2 } else { found.1 })
            }
            item::TASK_TO_RANK => Answer::Number(*items.ranks.get(number as usize).ok_or(code::NOEXIST)?),
            item::RANK_TO_TASK => {
                let found = items.ranks.iter().position(|rank| *rank == number);
                Answer::Number(found.ok_or(code::NOEXIST)? as u32)
            }
            item::GROUPS => Answer::Groups(items.groups.len(), items.groups.as_ptr().expose_provenance()),
            item::CPUS_PER_TASK => Answer::Number(items.cpus_per_task),
            item::JOB_MEMORY => Answer::Long(items.job_memory_mb),
            item::STEP_MEMORY => Answer::Long(items.step_memory_mb),
            item::RESTARTS => Answer::Number(items.restarts),
            item::ARRAY => Answer::Number(items.array),
            item::ARRAY_TASK => Answer::Number(items.array_task),
            item::JOB_CORES | item::STEP_CORES => {
                let text = items_text(if item == item::JOB_CORES { &items.job_cores } else { &items.step_cores });
                Answer::Text(self.kept(text))
            }
            _ => return Err(code::BAD_ARG),
        })
    }

    fn version(&mut self, part: usize) -> Answer {
        let version = slurm_version();
        let text = match part.checked_sub(1) {
            None => version,
            Some(at) => version.split('.').nth(at).unwrap_or_default().to_owned(),
        };
        Answer::Text(self.kept(items_text(&text)))
    }

    fn of_task(&self, item: c_int) -> Answered<Answer> {
        let remote = self.context == Context::Remote;
        let task = self.task.ok_or(if remote { code::NOT_TASK } else { code::NOT_REMOTE })?;
        match item {
            item::TASK => Ok(Answer::Signed(task.local as i32)),
            item::TASK_RANK => Ok(Answer::Number(task.rank)),
            item::TASK_PID => Ok(Answer::Signed(task.pid as i32)),
            _ => task.status.map(Answer::Signed).ok_or(code::NOT_AVAIL),
        }
    }

    /// Keeps a text as long as this process lasts; returns its address.
    fn kept(&mut self, text: CString) -> usize {
        if let Some(known) = self.texts.iter().find(|known| **known == text) {
            return known.as_ptr().expose_provenance();
        }
        self.texts.push(text);
        self.texts.last().map_or(0, |text| text.as_ptr().expose_provenance())
    }

    /// Shows environment (0) or command (1) as an array that ends with a null pointer. It is valid until the next call.
    fn show(&mut self, which: usize) -> Answer {
        let texts = if which == 0 { self.env.clone() } else { self.argv.clone() };
        let addresses = texts.iter().map(|text| text.as_ptr().expose_provenance()).chain([0]).collect::<Vec<_>>();
        let count = texts.len();
        self.shown[which] = (texts, addresses);
        Answer::Texts(count, self.shown[which].1.as_ptr().expose_provenance())
    }

    /// Returns the job's environment, which only plugins beside a step may use.
    pub(super) fn job_env(&mut self) -> Answered<&mut Vec<CString>> {
        if self.context == Context::Remote { Ok(&mut self.env) } else { Err(code::NOT_REMOTE) }
    }

    /// Returns the variables for prologs and epilogs, which only plugins beside commands may use.
    pub(super) fn control_env(&mut self) -> Answered<&mut Vec<CString>> {
        match self.context {
            Context::Local | Context::Allocator => Ok(&mut self.control),
            Context::Remote => Err(code::NOT_LOCAL),
            Context::Slurmd | Context::JobScript => Err(code::NOT_AVAIL),
        }
    }

    /// Adds an option of the plugin that runs. Err: it can't be one.
    pub(super) fn register(&mut self, option: PluginOption) -> Answered<()> {
        let name = option.name.to_bytes();
        if !self.registers || name.is_empty() || name.len() > 75 || name.contains(&b'=') {
            return Err(code::BAD_ARG);
        }
        if self.options.iter().any(|known| known.name == option.name) {
            return Err(code::BAD_ARG);
        }
        self.options.push(option);
        Ok(())
    }

    /// Returns the value that the user gave to an option of the plugin that runs.
    pub(super) fn given(&self, name: &CStr) -> Answered<&CString> {
        // Around a job, names come from variables.
        let plain = (self.context == Context::JobScript).then(|| CString::new(plain(&name.to_string_lossy())).ok());
        let plain = plain.flatten();
        let name = plain.as_deref().unwrap_or(name);
        let own = self.options.iter().find(|known| known.plugin == self.plugin && known.name.as_c_str() == name);
        own.and_then(|option| option.given.as_ref()).ok_or(code::ERROR)
    }
}

/// Returns a text as names of variables have it, with `_` for what they may not have.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn items_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Returns the place of a variable in an environment.
fn find(env: &[CString], name: &[u8]) -> Option<usize> {
    let named = |entry: &[u8]| entry.get(name.len()) == Some(&b'=') && entry.starts_with(name);
    env.iter().position(|entry| named(entry.as_bytes()))
}

/// Returns the value of a variable.
pub(crate) fn value<'a>(env: &'a [CString], name: &[u8]) -> Option<&'a [u8]> {
    find(env, name).map(|at| &env[at].as_bytes()[name.len() + 1..])
}

/// Sets a variable.
pub(crate) fn set(env: &mut Vec<CString>, name: &[u8], value: &[u8], overwrite: bool) -> Answered<()> {
    if name.is_empty() || name.contains(&b'=') {
        return Err(code::BAD_ARG);
    }
    let entry = CString::new([name, b"=", value].concat()).map_err(|_| code::BAD_ARG)?;
    match find(env, name) {
        Some(_) if !overwrite => return Err(code::ENV_EXISTS),
        Some(at) => env[at] = entry,
        None => env.push(entry),
    }
    Ok(())
}

/// Removes a variable.
pub(crate) fn unset(env: &mut Vec<CString>, name: &[u8]) {
    if let Some(at) = find(env, name) {
        env.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Session, Task, code, item, set, unset, value};
    use crate::plugins::words::{Context, Items};

    #[test]
    fn items_have_answers_where_they_make_sense() {
        let mut session = Session::new();
        assert_eq!(session.item(item::JOB, 0), Err(code::NOT_REMOTE));
        session.items = Some(Items { job: 7, ranks: vec![4, 6], cpus: 3, ..Items::default() });
        assert_eq!(session.item(item::JOB, 0), Ok(Answer::Number(7)));
        assert_eq!(session.item(item::CPUS, 0), Err(code::NOT_REMOTE), "srun knows it not yet");
        session.context = Context::Remote;
        assert_eq!(session.item(item::CPUS, 0), Ok(Answer::Short(3)));
        assert_eq!(session.item(item::TASK_TO_RANK, 1), Ok(Answer::Number(6)));
        assert_eq!(session.item(item::RANK_TO_TASK, 5), Err(code::NOEXIST));
        assert_eq!(session.item(item::TASK, 0), Err(code::NOT_TASK));
        assert_eq!(session.item(item::PID_TO_RANK, 9), Err(code::NOT_EXECD));
        session.task = Some(Task { local: 1, rank: 6, pid: 99, status: None });
        assert_eq!(session.item(item::TASK_RANK, 0), Ok(Answer::Number(6)));
        assert_eq!(session.item(item::TASK_RANK + 1, 0), Err(code::NOT_AVAIL), "the exit status comes with the end");
        assert_eq!(session.item(77, 0), Err(code::BAD_ARG));
        session.context = Context::JobScript;
        assert_eq!(session.item(item::JOB, 0), Ok(Answer::Number(7)));
        assert_eq!(session.item(item::STEP, 0), Err(code::NOT_AVAIL));
        session.context = Context::Slurmd;
        assert_eq!(session.item(item::JOB, 0), Err(code::NOT_AVAIL));
        assert!(matches!(session.item(item::VERSION, 0), Ok(Answer::Text(_))));
    }

    #[test]
    fn the_control_environment_is_for_commands() {
        let mut session = Session::new();
        for (context, answer) in [
            (Context::Local, Ok(())),
            (Context::Allocator, Ok(())),
            (Context::Remote, Err(code::NOT_LOCAL)),
            (Context::Slurmd, Err(code::NOT_AVAIL)),
            (Context::JobScript, Err(code::NOT_AVAIL)),
        ] {
            session.context = context;
            assert_eq!(session.control_env().map(drop), answer, "{context:?}");
        }
    }

    #[test]
    fn variables_are_set_once_and_removed() {
        let mut env = Vec::new();
        assert_eq!(set(&mut env, b"A", b"1", false), Ok(()));
        assert_eq!(set(&mut env, b"A", b"2", false), Err(code::ENV_EXISTS));
        assert_eq!(set(&mut env, b"A", b"3", true), Ok(()));
        assert_eq!((value(&env, b"A"), value(&env, b"B")), (Some(&b"3"[..]), None));
        assert_eq!(set(&mut env, b"A=B", b"3", true), Err(code::BAD_ARG));
        unset(&mut env, b"A");
        assert!(env.is_empty());
    }
}
