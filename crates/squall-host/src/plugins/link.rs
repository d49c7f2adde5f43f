//! The side of a command: plugins beside `srun`, `sbatch` and `salloc`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use squall_text::format::words::release;

use super::words::{Change, Context, FromPlugins, Given, Items, Offered, Order, ToPlugins};
use crate::messages::{receive, send};
use crate::sys::command::unblock_signals;

/// Time that a hook beside a command may take, seconds.
const TIMEOUT_S: u64 = 600;
/// Time that plugins have for their last hook.
const LAST: Duration = Duration::from_secs(30);

/// Plugins beside a command. When this is dropped they end.
#[derive(Debug)]
pub struct Plugins {
    link: UnixStream,
    process: Child,
    /// Prints a text of a plugin.
    tell: fn(&str),
    /// The options of the plugins.
    pub offers: Vec<Offered>,
}

impl Plugins {
    /// Loads the plugins that a file lists. Err: a required one can't be loaded, or refuses.
    pub fn start(file: &Path, context: Context, tell: fn(&str)) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("no process for SPANK plugins: {e}");
        let (link, other) = UnixStream::pair().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["step", "--plugins"]).stdin(Stdio::from(OwnedFd::from(other))).stdout(Stdio::null());
        let process = unblock_signals(&mut command).spawn().map_err(failed)?;
        // The command itself has the other end no more.
        drop(command);
        let mut plugins = Self { link, process, tell, offers: Vec::new() };
        let file = file.to_string_lossy().into_owned();
        let release = release().name().to_owned();
        let order = Order { context, file, timeout_s: TIMEOUT_S, release, ..Order::default() };
        plugins.send(&ToPlugins::Begin(Box::new(order)))?;
        match plugins.answer()? {
            FromPlugins::Offers(offers) => plugins.offers = offers,
            _ => return Err("SPANK plugins answer something else".to_owned()),
        }
        Ok(plugins)
    }

    /// Hands over the options that the user gave; returns what becomes of the environment, and the variables for prologs
    /// and epilogs. Err: a plugin refuses.
    pub fn give(&mut self, given: Vec<Given>) -> Result<(Vec<Change>, Vec<Change>), String> {
        self.send(&ToPlugins::Given(given))?;
        self.changes()
    }

    /// Tells the plugins the job. Err: a plugin refuses.
    pub fn tell_job(&mut self, items: Items) -> Result<(), String> {
        self.send(&ToPlugins::Job(Box::new(items)))?;
        self.changes().map(drop)
    }

    fn changes(&mut self) -> Result<(Vec<Change>, Vec<Change>), String> {
        match self.answer()? {
            FromPlugins::Ready(changes, control) => Ok((changes, control)),
            _ => Err("SPANK plugins answer something else".to_owned()),
        }
    }

    fn send(&mut self, message: &ToPlugins) -> Result<(), String> {
        send(&mut self.link, message).map_err(|e| format!("SPANK plugins can't be reached: {e}"))
    }

    /// Receives the next message that is no text.
    fn answer(&mut self) -> Result<FromPlugins, String> {
        loop {
            match receive(&mut self.link) {
                Ok(Some(FromPlugins::Said(text))) => (self.tell)(&text),
                Ok(Some(FromPlugins::Refused(why))) => return Err(why),
                Ok(Some(message)) => return Ok(message),
                Ok(None) => return Err("the process of the SPANK plugins has ended".to_owned()),
                Err(e) => return Err(format!("the process of the SPANK plugins: {e}")),
            }
        }
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.send(&ToPlugins::Over));
        drop(self.link.set_read_timeout(Some(LAST)));
        // Texts of the last hook, up to the end of the link.
        while self.answer().is_ok() {}
        drop(self.link.shutdown(std::net::Shutdown::Both));
        drop(self.process.wait());
    }
}
