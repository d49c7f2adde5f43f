//! SPANK plugins beside `sbatch`, `srun` and `salloc`: their options, and what they change in the environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use squall_files::place::Place;
use squall_host::plugins::link::Plugins;
use squall_host::plugins::words::{Change, Context, Given, Items};
use squall_model::encoding::ByteBuf;
use squall_model::id::JobId;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::table::plugins::{PluginOption, add};
use squall_text::options::{Stop, Tool};

use crate::capture::Vars;

/// The plugins of a command. None: the cluster has none.
#[derive(Debug)]
pub(crate) struct Beside(Option<Plugins>);

impl Beside {
    /// Loads the site's plugins, and adds their options to those of the command.
    pub(crate) fn start(tool: Tool) -> Result<Self, Stop> {
        let Some(file) = Place::find().and_then(|place| place.plugins()) else { return Ok(Self(None)) };
        let context = if tool == Tool::Srun { Context::Local } else { Context::Allocator };
        let tell: fn(&str) = match tool {
            Tool::Srun => |text: &str| eprintln!("srun: {text}"),
            Tool::Sbatch => |text: &str| eprintln!("sbatch: {text}"),
            Tool::Salloc => |text: &str| eprintln!("salloc: {text}"),
        };
        let plugins = Plugins::start(&file, context, tell).map_err(Stop::bad)?;
        let options = plugins.offers.iter().cloned().map(|offer| PluginOption {
            name: offer.name,
            value_name: offer.value_name,
            usage: offer.usage,
            has_arg: offer.has_arg,
        });
        add(options.collect());
        Ok(Self(Some(plugins)))
    }

    /// Hands over the options that the user gave, and applies what becomes of the environment. `all`: the components of a
    /// heterogeneous job, of which the first alone may have options of plugins, as these concern the whole job. All of them
    /// have what plugins set for prologs.
    pub(crate) fn give(&mut self, all: &mut [SubmitOptions], vars: &mut Vars) -> Result<(), Stop> {
        let Some(plugins) = &mut self.0 else { return Ok(()) };
        let (first, others) = all.split_first().unzip();
        if let Some((name, _)) = others.unwrap_or_default().iter().flat_map(|asked| &asked.plugins).next() {
            let problem = "an option of a plugin is for the whole job: give it to the first component";
            return Err(Stop::bad(format!("--{name}: {problem}")));
        }
        let given = first.into_iter().flat_map(|asked: &SubmitOptions| &asked.plugins);
        let given = given.map(|(name, value)| Given { name: name.clone(), value: value.clone() });
        let (changes, control) = plugins.give(given.collect()).map_err(Stop::bad)?;
        let text = |bytes: ByteBuf| String::from_utf8(bytes.into_vec()).ok();
        let control = control.into_iter().filter_map(|Change { name, value }| Some((text(name)?, text(value?)?)));
        let control: Vec<(String, String)> = control.collect();
        for asked in all.iter_mut().filter(|_| !control.is_empty()) {
            asked.spec.options.plugin_env.clone_from(&control);
        }
        for Change { name, value } in changes {
            let name = OsString::from_vec(name.into_vec());
            vars.retain(|(known, _)| *known != name);
            vars.extend(value.map(|value| (name, OsString::from_vec(value.into_vec()))));
        }
        Ok(())
    }

    /// Tells the plugins the job of srun. `nodes`: their number; 0: it is not known.
    pub(crate) fn tell_job(&mut self, job: JobId, nodes: u32) -> Result<(), Stop> {
        let Some(plugins) = &mut self.0 else { return Ok(()) };
        let groups = rustix::process::getgroups().unwrap_or_default();
        let items = Items {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
            job: job.0,
            nodes,
            ..Items::default()
        };
        plugins.tell_job(items).map_err(Stop::bad)
    }
}
