//! Options that SPANK plugins of the site add. They are known when the plugins are loaded, so once in a command.

use std::sync::OnceLock;

use crate::options::submit::SubmitOptions;
use crate::options::{Arg, Effect, GivenOption, Opt, Stop, Tools};

/// Title of the options in `--help`.
pub const TITLE: &str = "Options of plugins";

static ADDED: OnceLock<Vec<Opt>> = OnceLock::new();

/// An option of a plugin.
#[derive(Clone, Debug)]
pub struct PluginOption {
    /// Long name, without dashes.
    pub name: String,
    /// Name of the value in the help.
    pub value_name: String,
    /// Text of the help.
    pub usage: String,
    /// Whether it takes a value: 0: no; 1: yes; 2: perhaps.
    pub has_arg: u8,
}

/// Adds the options of plugins to those of this command. Later calls change nothing.
pub fn add(options: Vec<PluginOption>) {
    ADDED.get_or_init(|| options.into_iter().map(PluginOption::into_opt).collect());
}

/// Returns the options that plugins have added.
pub fn added() -> &'static [Opt] {
    ADDED.get().map_or(&[], Vec::as_slice)
}

impl PluginOption {
    fn into_opt(self) -> Opt {
        // They last as long as the command.
        let kept = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let value = kept(if self.value_name.is_empty() { "arg".to_owned() } else { self.value_name });
        Opt {
            long: kept(self.name),
            aliases: &[],
            short: None,
            arg: [Arg::None, Arg::Needed(value)].get(usize::from(self.has_arg)).copied().unwrap_or(Arg::Maybe(value)),
            tools: Tools::ALL,
            env: &[],
            doc: kept(if self.usage.is_empty() { "option of a plugin".to_owned() } else { self.usage }),
            effect: Effect::Works,
            set: keep,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is a setter as all the others")]
fn keep(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    asked.plugins.push((given.option.long.to_owned(), given.value.map(str::to_owned)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PluginOption, added};
    use crate::options::{Arg, Effect};

    #[test]
    fn an_option_of_a_plugin_is_a_row_like_others() {
        let option =
            |has_arg| PluginOption { name: "renice".into(), value_name: "N".into(), usage: String::new(), has_arg };
        let row = option(1).into_opt();
        assert_eq!((row.long, row.arg, row.effect), ("renice", Arg::Needed("N"), Effect::Works));
        assert_eq!([0, 2, 9].map(|arg| option(arg).into_opt().arg), [Arg::None, Arg::Maybe("N"), Arg::Maybe("N")]);
        assert!(added().is_empty(), "a test adds none");
    }
}
