//! The plugins of a process, in order: loads them, calls their hooks, and judges what they answer.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::conf::{self, Line};
use super::voice::{say, tell};
use super::words::{Change, Context, Given, Offered};
use crate::sys::spank::{Hook, Library, Limit, PluginOption, Progress, hand_over, plain, session, value};

/// Beginning of variables by which options reach steps.
const OPTION: &str = "_SLURM_SPANK_OPTION_";
/// What stands before it in variables by which users give options to commands.
const BY_USER: &str = "SLURM_SPANK_";

/// A loaded plugin.
#[derive(Debug)]
struct Plugin {
    name: String,
    required: bool,
    library: Library,
    /// Number of its line.
    number: usize,
}

/// All loaded plugins.
#[derive(Debug)]
pub(super) struct Stack {
    plugins: Vec<Plugin>,
    progress: Cell<Progress>,
    limit: Duration,
    /// Whether another process limits the time of hooks.
    apart: Cell<bool>,
    /// Numbers of plugins that have crashed, and are not called any more.
    skipped: RefCell<Vec<usize>>,
}

impl Stack {
    /// Returns which plugin runs which hook. None: none does.
    pub(super) fn progress(&self) -> Option<(usize, Hook)> {
        self.progress.get().read()
    }

    /// Does not call a plugin any more.
    pub(super) fn skip(&self, number: usize) {
        self.skipped.borrow_mut().push(number);
        self.progress.get().note(None);
    }

    /// Notes what plugins do apart from the process of which this is a copy. This process limits the time that hooks take
    /// in its copies, since a hook may make a further process that goes on in its stead.
    pub(super) fn note_apart(&self) -> io::Result<()> {
        self.progress.set(Progress::new()?);
        self.apart.set(true);
        Ok(())
    }

    /// Returns whether a hook takes too long.
    pub(super) fn is_late(&self) -> bool {
        self.progress.get().is_late(self.limit)
    }

    /// Loads plugins and has them register their options. `skipped`: numbers of lines that are left out. Err: a required
    /// plugin can't be loaded, or refuses.
    pub(super) fn load(
        lines: &[Line],
        skipped: &[usize],
        (progress, limit): (Progress, Duration),
    ) -> Result<Self, String> {
        let mut stack = Self {
            plugins: Vec::new(),
            progress: Cell::new(progress),
            limit,
            apart: Cell::new(false),
            skipped: RefCell::default(),
        };
        for (number, line) in lines.iter().enumerate().filter(|(number, _)| !skipped.contains(number)) {
            match stack.open(number, line) {
                Ok(plugin) => stack.plugins.push(plugin),
                Err(why) if line.required => return Err(format!("spank: required plugin: {why}")),
                Err(why) => tell(&format!("error: spank: optional plugin is left out: {why}")),
            }
        }
        let context = session().context;
        if context == Context::JobScript {
            // Plugins are loaded for one hook.
            return Ok(stack);
        }
        session().registers = true;
        // As in Slurm: beside `sbatch` and `salloc`, plugins register their tables themselves if they are for these.
        for plugin in stack.plugins.iter().filter(|_| context != Context::Allocator) {
            session().plugin = plugin.number;
            plugin.library.register_table();
        }
        let done = stack.run(Hook::Init);
        session().registers = false;
        done?;
        if context == Context::Slurmd {
            stack.run(Hook::SlurmdInit)?;
        }
        Ok(stack)
    }

    /// Takes up options of the plugins from variables of a program around a job.
    pub(super) fn find_options(&self) {
        for (name, value) in std::env::vars_os() {
            let own = |plugin: &&Plugin| format!("SPANK_{}", self.variable(plugin.number, &CString::default()));
            let named = self.plugins.iter().find_map(|plugin| {
                let option = name.as_bytes().strip_prefix(own(&plugin).as_bytes())?;
                Some((plugin.number, CString::new(option).ok()?))
            });
            if let (Some((plugin, option)), Ok(value)) = (named, CString::new(value.as_bytes())) {
                session().options.push(PluginOption::found(plugin, option, value));
            }
        }
    }

    fn open(&self, number: usize, line: &Line) -> Result<Plugin, String> {
        line.check()?;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| format!("{}: it has a NUL byte", line.place));
        let path = text(line.path.as_os_str().as_bytes())?;
        let args = line.args.iter().map(|arg| text(arg.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let loaded = self.watched(number, Hook::Init, || Library::load(&path, args));
        let library = loaded.map_err(|why| format!("{}: {}: {why}", line.place, line.path.display()))?;
        let name = library.name().unwrap_or_else(|| shown(line));
        Ok(Plugin { name, required: line.required, library, number })
    }

    /// Notes which plugin runs, and limits its time.
    fn watched<T>(&self, number: usize, hook: Hook, work: impl FnOnce() -> T) -> T {
        session().plugin = number;
        self.progress.get().note(Some((number, hook)));
        let limit = (!self.apart.get()).then(|| Limit::begin(self.limit));
        let result = work();
        drop(limit);
        self.progress.get().note(None);
        result
    }

    /// Calls a hook of all plugins. Err: a required plugin refuses; the others are not called.
    pub(super) fn run(&self, hook: Hook) -> Result<(), String> {
        for plugin in self.plugins.iter().filter(|plugin| !self.skipped.borrow().contains(&plugin.number)) {
            let answer = self.watched(plugin.number, hook, || plugin.library.call(hook));
            // As in Slurm, a required plugin fails with any number other than 0.
            let fails = |answer: &i32| *answer < 0 || (*answer > 0 && plugin.required);
            let Some(answer) = answer.filter(fails) else { continue };
            let kind = if plugin.required { "required" } else { "optional" };
            let text = format!("spank: {kind} plugin {}: {} failed with status {answer}", plugin.name, hook.name());
            if plugin.required {
                return Err(text);
            }
            tell(&format!("error: {text}"));
        }
        Ok(())
    }

    /// Returns the options that the plugins have registered.
    pub(super) fn offers() -> Vec<Offered> {
        let offer = |text: &CString| text.to_string_lossy().into_owned();
        let session = session();
        let options = session.options.iter().map(|option| Offered {
            name: offer(&option.name),
            value_name: offer(&option.value_name),
            usage: offer(&option.usage),
            has_arg: option.has_arg.clamp(0, 2) as u8,
        });
        options.collect()
    }

    /// Hands options over to their plugins. Err: a plugin does not take a value.
    fn hand_over(&self, given: Vec<(usize, CString)>) -> Result<(), String> {
        let remote = session().context == Context::Remote;
        for (at, value) in given {
            session().options[at].given = Some(value);
            let option = session().options[at].clone();
            let taken = self.watched(option.plugin, Hook::InitPostOpt, || hand_over(&option, remote));
            if !taken {
                let (name, given) = (option.name.to_string_lossy(), option.given.unwrap_or_default());
                let text = format!("Invalid --{name} argument: {}", given.to_string_lossy());
                if !remote || self.plugins.iter().any(|plugin| plugin.number == option.plugin && plugin.required) {
                    return Err(text);
                }
                say(0, &text);
            }
        }
        Ok(())
    }

    /// Hands over the options that the user gave to a command, or set by variables of its environment.
    pub(super) fn give(&self, given: &[Given]) -> Result<(), String> {
        let place = |name: &str| session().options.iter().position(|option| option.name.as_bytes() == name.as_bytes());
        let set = |option: &PluginOption| {
            std::env::var_os(format!("{BY_USER}{}", self.variable(option.plugin, &option.name)))
        };
        let by_user = session().options.iter().map(set).collect::<Vec<_>>().into_iter().enumerate();
        let by_user = by_user.filter_map(|(at, value)| Some((at, CString::new(value?.as_bytes()).ok()?)));
        let mut all: Vec<(usize, CString)> = by_user.collect();
        for one in given {
            let Some(at) = place(&one.name) else { continue };
            all.retain(|(known, _)| *known != at);
            all.push((at, CString::new(one.value.as_deref().unwrap_or_default()).unwrap_or_default()));
        }
        self.hand_over(all)
    }

    /// Hands over the options that are in the job's environment.
    pub(super) fn give_from_environment(&self) -> Result<(), String> {
        let all = {
            let session = session();
            let names = session.options.iter().map(|option| self.variable(option.plugin, &option.name));
            let found = names.enumerate().filter_map(|(at, name)| Some((at, value(&session.env, name.as_bytes())?)));
            found.filter_map(|(at, value)| Some((at, CString::new(value).ok()?))).collect()
        };
        self.hand_over(all)
    }

    /// Returns the variables by which options reach steps: those given, with their values.
    pub(super) fn variables(&self) -> Vec<Change> {
        let session = session();
        let given = session.options.iter().filter_map(|option| {
            let value = option.given.as_ref()?.as_bytes().to_vec().into();
            Some(Change { name: self.variable(option.plugin, &option.name).into(), value: Some(value) })
        });
        given.collect()
    }

    fn variable(&self, plugin: usize, option: &CString) -> String {
        let name = self.plugins.iter().find(|known| known.number == plugin).map_or("", |plugin| plugin.name.as_str());
        format!("{OPTION}{}_{}", plain(name), plain(&option.to_string_lossy()))
    }
}

/// Returns the name of a line's plugin for users: that of its file.
fn shown(line: &Line) -> String {
    line.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns why a plugin that has ended its process is at fault. `killed`: by which signal.
pub(super) fn crash(lines: &[Line], (number, hook): (usize, Hook), killed: u8) -> (bool, String) {
    let required = lines.get(number).is_none_or(|line| line.required);
    let name = lines.get(number).map(shown).unwrap_or_default();
    let kind = if required { "required" } else { "optional" };
    let what = match i32::from(killed) {
        libc::SIGKILL => "took too long and was ended".to_owned(),
        0 => "ended its process".to_owned(),
        signal => format!("crashed with signal {signal}"),
    };
    (required, format!("spank: {kind} plugin {name} {what} in {}", hook.name()))
}

/// Reads the lines of a file. Err: the file is wrong.
pub(super) fn lines(file: &str) -> Result<Vec<Line>, String> {
    conf::read(Path::new(file)).map_err(|why| format!("spank: {why}"))
}
