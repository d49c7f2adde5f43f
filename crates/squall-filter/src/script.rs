//! The Lua interpreter with a site's script: what it sees, and its limits.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use mlua::chunk::ChunkMode;
use mlua::debug::Debug;
use mlua::{Error, Function, HookTriggers, IntoLuaMulti, Lua, LuaOptions, LuaString, StdLib, Table, VmState};
use rustix::time::{ClockId, clock_gettime};
use squall_model::config::PartitionConfig;
use squall_model::duration::parse_limit;
use squall_model::wire::client::JobUpdate;
use squall_model::wire::filter::{FilterScript, Modification, Submission, Verdict};

use crate::constants::{INFINITE, MEM_PER_CPU, NO_VAL, NO_VAL64, NUMBERS};
use crate::desc::{Desc, Value};
use crate::folder::Folder;
use crate::partitions::{self, Partition};

/// Most memory of a script, bytes.
const MEMORY_MAX: usize = 64 << 20;
/// Most CPU time of a script for a job.
const CPU_MAX: Duration = Duration::from_secs(1);
/// Instructions of Lua between two looks at the clock.
const LOOK_EVERY: u32 = 5000;
/// Most bytes of what a script tells the user, and of what it logs for a job.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A script that is loaded.
pub(crate) struct Script {
    lua: Lua,
    name: String,
    world: Rc<World>,
    job: Table,
    record: Table,
    partitions: Vec<Partition>,
}

/// What the functions that a script calls act on.
struct World {
    folder: Folder,
    /// The job that is submitted or changed.
    job: RefCell<Desc>,
    /// The job as it is, if it is changed.
    record: RefCell<Desc>,
    message: RefCell<String>,
    log: RefCell<Vec<(u32, String)>>,
    /// CPU time of the thread at which the call reaches its limit.
    until: Cell<Duration>,
    /// Where the script was at the last look.
    line: RefCell<String>,
}

impl Script {
    /// Loads a script. The error names file and line.
    pub(crate) fn load(script: FilterScript, folder: Folder) -> Result<Self, String> {
        let FilterScript { name, allow_programs, partitions, .. } = script;
        let world = Rc::new(World {
            folder,
            job: RefCell::default(),
            record: RefCell::default(),
            message: RefCell::default(),
            log: RefCell::default(),
            until: Cell::new(Duration::MAX),
            line: RefCell::default(),
        });
        let broken = |e: Error| text_of(&e, &name);
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::MATH | StdLib::COROUTINE;
        let options = LuaOptions::default();
        let lua = Lua::new_with(libraries | StdLib::OS | StdLib::IO, options).map_err(broken)?;
        lua.set_memory_limit(MEMORY_MAX).map_err(broken)?;
        furnish(&lua, &world, allow_programs).map_err(broken)?;
        let (job, record) = (proxy(&lua, &world, true).map_err(broken)?, proxy(&lua, &world, false).map_err(broken)?);
        let mut loaded = Self { lua, name, world, job, record, partitions: Vec::new() };
        loaded.set_partitions(&partitions)?;
        let content = loaded.world.folder.load(&loaded.name).map_err(|e| format!("{}: {e}", loaded.name))?;
        let chunk = loaded.lua.load(content.to_vec()).set_name(format!("@{}", loaded.name));
        let chunk = chunk.set_mode(ChunkMode::Text).into_function().map_err(|e| text_of(&e, &loaded.name))?;
        loaded.within_limits(&chunk, ())?;
        for word in ["slurm_job_submit", "slurm_job_modify"] {
            if loaded.function(word).is_none() {
                return Err(format!("{}: it defines no function {word}", loaded.name));
            }
        }
        Ok(loaded)
    }

    /// Returns the files of which the script consists.
    pub(crate) fn files(&self) -> &Folder {
        &self.world.folder
    }

    /// Replaces the partitions that the script sees.
    pub(crate) fn set_partitions(&mut self, all: &[PartitionConfig]) -> Result<(), String> {
        let made: mlua::Result<Vec<Partition>> = all.iter().map(|one| Partition::new(&self.lua, one)).collect();
        self.partitions = made.map_err(|e| text_of(&e, &self.name))?;
        Ok(())
    }

    /// Filters a submission.
    pub(crate) fn submit(&self, submission: Submission) -> Verdict {
        let owner = submission.about.owner.clone();
        self.world.job.replace(Desc::of_submission(submission));
        let seen = partitions::seen_by(&self.lua, &self.partitions, &owner);
        let call = |script: &Self| {
            let Some(function) = script.function("slurm_job_submit") else { return Ok(0) };
            let seen = seen.clone().map_err(|e| text_of(&e, &script.name))?;
            Ok(script.number(&script.within_limits(&function, (script.job.clone(), seen, owner.uid))?))
        };
        self.decide(None, call)
    }

    /// Filters a change of a job.
    pub(crate) fn modify(&self, modification: Modification) -> Verdict {
        let (owner, uid) = (modification.about.owner.clone(), modification.modify_uid);
        let asked = modification.change.clone();
        let (change, record) = Desc::of_modification(modification);
        self.world.job.replace(change);
        self.world.record.replace(record);
        let seen = partitions::seen_by(&self.lua, &self.partitions, &owner);
        let call = |script: &Self| {
            let Some(function) = script.function("slurm_job_modify") else { return Ok(0) };
            let seen = seen.clone().map_err(|e| text_of(&e, &script.name))?;
            let given = (script.job.clone(), script.record.clone(), seen, uid);
            Ok(script.number(&script.within_limits(&function, given)?))
        };
        self.decide(Some(asked), call)
    }

    fn function(&self, name: &str) -> Option<Function> {
        self.lua.globals().get(name).ok()
    }

    /// Makes a verdict of what a function of the script returns.
    fn decide(&self, asked: Option<JobUpdate>, call: impl Fn(&Self) -> Result<i64, String>) -> Verdict {
        let result = call(self);
        let mut verdict = Verdict { ends: self.lua.used_memory() > MEMORY_MAX / 2, ..Verdict::default() };
        let (job, message) = (self.world.job.take(), self.world.message.take());
        match result {
            Ok(0) => {
                verdict.message = message;
                job.conclude(asked, &mut verdict);
            }
            Ok(number) => (verdict.error, verdict.message) = (u32::try_from(number).unwrap_or(1), message),
            Err(problem) => {
                self.world.log(0, problem.clone());
                (verdict.error, verdict.message, verdict.ends) = (1, problem, true);
            }
        }
        verdict.log = self.world.log.take();
        verdict
    }

    /// Returns a script's result as a number; 0 if it is none, as in Slurm.
    fn number(&self, result: &mlua::Value) -> i64 {
        match result {
            mlua::Value::Integer(number) => *number,
            mlua::Value::Number(number) => *number as i64,
            _ => {
                self.world.log(1, format!("{}: non-numeric return code", self.name));
                0
            }
        }
    }

    /// Calls a function within the limits.
    fn within_limits(&self, function: &Function, given: impl IntoLuaMulti + Clone) -> Result<mlua::Value, String> {
        let often = HookTriggers::new().every_nth_instruction(LOOK_EVERY);
        match self.call(often, function, given.clone()) {
            Err(error) if matches!(root_of(&error), Error::MemoryError(_)) => {}
            result => return result.map_err(|e| text_of(&e, &self.name)),
        }
        // A second call, with a look at each line, tells where it is.
        let line = self.lua.gc_collect().and_then(|()| self.call(HookTriggers::EVERY_LINE, function, given));
        let (again, line) = (line.is_err(), self.world.line.take());
        let line = if again && !line.is_empty() { line } else { self.name.clone() };
        Err(format!("{line}: more than {} MiB of memory", MEMORY_MAX >> 20))
    }

    /// Calls a function, with looks at the clock.
    fn call(&self, looks: HookTriggers, function: &Function, given: impl IntoLuaMulti) -> mlua::Result<mlua::Value> {
        let world = Rc::clone(&self.world);
        world.until.set(cpu_time() + CPU_MAX);
        world.line.replace(String::new());
        let look = move |lua: &Lua, at: &Debug<'_>| {
            let source = at.source().short_src.map(Cow::into_owned).unwrap_or_default();
            let line = at.current_line().map_or(source.clone(), |line| format!("{source}:{line}"));
            if cpu_time() > world.until.get() {
                let text = format!("{line}: more than {} s of CPU time", CPU_MAX.as_secs());
                let stop = Error::runtime(&text);
                // A script that catches the error is stopped outside of that.
                let again = move |_: &Lua, _: &Debug<'_>| Err(Error::runtime(&text));
                lua.set_global_hook(HookTriggers::new().every_nth_instruction(1), again)?;
                return Err(stop);
            }
            world.line.replace(line);
            Ok(VmState::Continue)
        };
        self.lua.set_global_hook(looks, look)?;
        let result = function.call(given);
        self.lua.remove_global_hook();
        result
    }
}

impl World {
    fn log(&self, level: u32, text: String) {
        let mut log = self.log.borrow_mut();
        let bytes: usize = log.iter().map(|(_, line)| line.len()).sum();
        if bytes + text.len() <= TEXT_BYTES_MAX {
            log.push((level, text));
        }
    }
}

/// Returns the CPU time that this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Returns the error that others wrap.
fn root_of(error: &Error) -> &Error {
    match error {
        Error::CallbackError { cause, .. } => root_of(cause),
        error => error,
    }
}

/// Returns an error of Lua as a text that names file and line.
fn text_of(error: &Error, name: &str) -> String {
    let plain = match root_of(error) {
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => text.clone(),
        other => other.to_string(),
    };
    let plain = plain.split("\nstack traceback:").next().unwrap_or_default().trim().to_owned();
    let places = |text: &str| text.contains(".lua:") || text.starts_with(&format!("{name}:"));
    if places(&plain) {
        return plain;
    }
    let Error::CallbackError { traceback, .. } = error else { return format!("{name}: {plain}") };
    let place = traceback.lines().map(str::trim).find(|line| places(line)).and_then(|line| line.split(": ").next());
    format!("{}: {plain}", place.unwrap_or(name))
}

/// Returns a value for Lua.
pub(crate) fn to_lua(lua: &Lua, value: Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Nil => mlua::Value::Nil,
        Value::Int(number) => mlua::Value::Integer(number),
        Value::Large(number) => mlua::Value::Number(number),
        Value::Text(text) => mlua::Value::String(lua.create_string(text)?),
        Value::List(all) => {
            let table = lua.create_table()?;
            for (at, text) in all.into_iter().enumerate() {
                table.raw_set(at, text)?;
            }
            mlua::Value::Table(table)
        }
    })
}

/// Returns a value of Lua for a field.
fn of_lua(value: &mlua::Value) -> Option<Value> {
    Some(match value {
        mlua::Value::Nil => Value::Nil,
        mlua::Value::Boolean(on) => Value::Int((*on).into()),
        mlua::Value::Integer(number) => Value::Int(*number),
        mlua::Value::Number(number) if number.fract() == 0.0 && number.abs() < MEM_PER_CPU => {
            Value::Int(*number as i64)
        }
        mlua::Value::Number(number) => Value::Large(*number),
        mlua::Value::String(text) => Value::Text(text.as_bytes().to_vec()),
        _ => return None,
    })
}

/// Returns a table that reads and sets the fields of the job, or reads those of the job as it is.
fn proxy(lua: &Lua, world: &Rc<World>, sets: bool) -> mlua::Result<Table> {
    let environment = environment(lua, world)?;
    let (get, set) = (Rc::clone(world), Rc::clone(world));
    let meta = lua.create_table()?;
    let read = lua.create_function(move |lua, (_, name): (Table, String)| {
        if sets && name == "environment" {
            return Ok(mlua::Value::Table(environment.clone()));
        }
        // Making a value may run code of the script: nothing is borrowed then.
        let value = if sets { &get.job } else { &get.record }.borrow().get(&name);
        to_lua(lua, value)
    })?;
    meta.raw_set("__index", read)?;
    let write = lua.create_function(move |_, (_, name, value): (Table, String, mlua::Value)| {
        let value = of_lua(&value).ok_or_else(|| Error::runtime(format!("{name}: a text or a number is needed")))?;
        if !sets {
            return Err(Error::runtime("job_rec can't be changed: change job_desc"));
        }
        if let Err(problem) = set.job.borrow_mut().set(&name, &value) {
            set.log(0, problem);
        }
        Ok(())
    })?;
    meta.raw_set("__newindex", write)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// Returns a table that reads and sets variables of the job's environment.
fn environment(lua: &Lua, world: &Rc<World>) -> mlua::Result<Table> {
    let (get, set) = (Rc::clone(world), Rc::clone(world));
    let meta = lua.create_table()?;
    let read = lua.create_function(move |lua, (_, name): (Table, LuaString)| {
        let value = get.job.borrow().variable(&name.as_bytes()).map(<[u8]>::to_vec);
        value.map(|value| lua.create_string(value)).transpose()
    })?;
    meta.raw_set("__index", read)?;
    let write = lua.create_function(move |_, (_, name, value): (Table, LuaString, LuaString)| {
        let mut job = set.job.borrow_mut();
        let done = job.set_variable(&name.as_bytes(), &value.as_bytes());
        done.map_err(Error::runtime)
    })?;
    meta.raw_set("__newindex", write)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// Adds what scripts use, and removes what they may not.
fn furnish(lua: &Lua, world: &Rc<World>, allow_programs: bool) -> mlua::Result<()> {
    let globals = lua.globals();
    let slurm = lua.create_table()?;
    for (name, number) in NUMBERS {
        slurm.raw_set(*name, *number)?;
    }
    slurm.raw_set("NO_VAL64", NO_VAL64)?;
    slurm.raw_set("INFINITE64", NO_VAL64)?;
    slurm.raw_set("MEM_PER_CPU", MEM_PER_CPU)?;
    let told = Rc::clone(world);
    let tell = lua.create_function(move |_, text: String| {
        let mut message = told.message.borrow_mut();
        if message.len() + text.len() < TEXT_BYTES_MAX {
            let parts = if message.is_empty() { ["", &*text] } else { ["\n", &*text] };
            message.push_str(&parts.concat());
        }
        Ok(())
    })?;
    slurm.raw_set("user_msg", tell)?;
    let minutes = lua.create_function(|_, text: String| {
        let seconds = parse_limit(&text).map_err(|_| Error::runtime(format!("`{text}` is no time")));
        Ok(seconds?.map_or(INFINITE, |seconds| i64::try_from(seconds.div_ceil(60)).unwrap_or(NO_VAL)))
    })?;
    slurm.raw_set("time_str2mins", minutes)?;
    globals.raw_set("slurm", slurm)?;
    let host = lua.create_table()?;
    let logged = Rc::clone(world);
    let log = lua.create_function(move |_, (level, text): (u32, LuaString)| {
        logged.log(level, text.to_string_lossy());
        Ok(())
    })?;
    host.raw_set("log", log)?;
    let files = Rc::clone(world);
    let text = lua.create_function(move |lua, name: String| match files.folder.load(&name) {
        Ok(content) => Ok((Some(lua.create_string(&*content)?), None)),
        Err(e) => Ok((None, Some(format!("{name}: {e}")))),
    })?;
    host.raw_set("text", text)?;
    lua.load(include_str!("prelude.lua")).set_name("@prelude.lua").call::<()>(host)?;
    if !allow_programs {
        confine(lua, world)?;
    }
    let os: Table = globals.get("os")?;
    ["exit", "setlocale"].into_iter().try_for_each(|name| os.raw_remove(name))
}

/// Leaves a script neither programs nor files outside of its folder.
fn confine(lua: &Lua, world: &Rc<World>) -> mlua::Result<()> {
    let (globals, os) = (lua.globals(), lua.create_table()?);
    let all: Table = globals.get("os")?;
    for name in ["clock", "date", "difftime", "getenv", "time"] {
        os.raw_set(name, all.raw_get::<mlua::Value>(name)?)?;
    }
    for name in ["execute", "remove", "rename", "tmpname"] {
        let refuse = move |_: &Lua, _: mlua::MultiValue| -> mlua::Result<()> {
            Err(Error::runtime(format!("os.{name} needs `allow_programs = true` in [submit]")))
        };
        os.raw_set(name, lua.create_function(refuse)?)?;
    }
    globals.raw_set("os", os)?;
    let io = lua.create_table()?;
    let refuse = |_: &Lua, _: mlua::MultiValue| -> mlua::Result<()> {
        Err(Error::runtime("io.popen needs `allow_programs = true` in [submit]"))
    };
    io.raw_set("popen", lua.create_function(refuse)?)?;
    let folder = Rc::clone(world);
    let read = lua.create_function(move |lua, (name, mode): (String, Option<String>)| {
        if mode.is_some_and(|mode| !["r", "rb"].contains(&mode.as_str())) {
            return Ok((None, Some(format!("{name}: files are only read"))));
        }
        let mut content = Vec::new();
        let done =
            folder.folder.file(&name).and_then(|file| file.take(MEMORY_MAX as u64 / 8).read_to_end(&mut content));
        match done {
            Ok(_) => Ok((Some(lua.create_string(content)?), None)),
            Err(e) => Ok((None, Some(format!("{name}: {e}")))),
        }
    })?;
    io.raw_set("content", read)?;
    globals.raw_set("io", io)?;
    lua.load(include_str!("files.lua")).set_name("@files.lua").exec()
}
