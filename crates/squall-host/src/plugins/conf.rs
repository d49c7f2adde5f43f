//! `plugstack.conf`: which plugins are loaded, in which order, and with which arguments.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::hook::check;

/// Most files that include each other.
const DEPTH_MAX: usize = 8;
/// Most plugins.
const PLUGINS_MAX: usize = 128;
/// Longest file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Folders in which a plugin without a path is searched, as Slurm's packages have them.
const FOLDERS: [&str; 6] = [
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/local/lib/slurm",
    "/usr/local/lib64/slurm",
];

/// A line of the file: a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Whether a step or job that the plugin refuses does not begin.
    pub required: bool,
    /// File of the plugin.
    pub path: PathBuf,
    /// Arguments of the plugin.
    pub args: Vec<String>,
    /// Where the line stands: `plugstack.conf:3`.
    pub place: String,
}

/// Reads the file and those that it includes. Err: what is wrong, and where.
pub fn read(path: &Path) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    add(path, 0, &mut lines)?;
    Ok(lines)
}

/// Returns what is wrong with the plugins of a file: that they are missing, or that others can change them.
pub fn faults(lines: &[Line]) -> Vec<String> {
    lines.iter().filter_map(|line| line.check().err()).collect()
}

/// Which hooks besides those of steps and commands plugins have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Before a job on a node.
    pub prolog: bool,
    /// After a job on a node.
    pub epilog: bool,
    /// Beside the node daemon.
    pub daemon: bool,
}

impl Wanted {
    /// Returns which hooks the files of plugins name. No plugin is loaded.
    pub fn of(lines: &[Line]) -> Self {
        let mut wanted = Self::default();
        // Whoever loads the plugin reports a file that is missing.
        for bytes in lines.iter().filter_map(|line| fs::read(&line.path).ok()) {
            let names =
                |name: &CStr| bytes.windows(name.to_bytes_with_nul().len()).any(|w| w == name.to_bytes_with_nul());
            wanted.prolog |= names(c"slurm_spank_job_prolog");
            wanted.epilog |= names(c"slurm_spank_job_epilog");
            // As in Slurm, where `slurm_spank_init` is called beside the node daemon, too.
            let of_daemon = [c"slurm_spank_init", c"slurm_spank_slurmd_init", c"slurm_spank_slurmd_exit"];
            wanted.daemon |= of_daemon.into_iter().any(names);
        }
        wanted
    }
}

impl Line {
    /// Refuses a plugin that is missing, or that another user could change.
    pub fn check(&self) -> Result<(), String> {
        check(&self.path).map_err(|e| format!("{}: {e}", self.place))
    }
}

fn add(path: &Path, depth: usize, lines: &mut Vec<Line>) -> Result<(), String> {
    let wrong = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    if depth > DEPTH_MAX {
        return Err(wrong(&"files include each other without end"));
    }
    check(path).map_err(|e| e.to_string())?;
    if fs::metadata(path).map_err(|e| wrong(&e))?.len() > FILE_BYTES_MAX {
        return Err(wrong(&"the file is too long"));
    }
    let text = fs::read_to_string(path).map_err(|e| wrong(&e))?;
    for (at, text) in text.lines().enumerate() {
        let place = format!("{}:{}", path.display(), at + 1);
        let words = words(text).ok_or_else(|| format!("{place}: a quote is not closed"))?;
        let Some((kind, rest)) = words.split_first() else { continue };
        let required = match kind.as_str() {
            "required" => true,
            "optional" => false,
            "include" => {
                let pattern = rest.first().ok_or_else(|| format!("{place}: include needs a path"))?;
                let base = path.parent().unwrap_or(Path::new("/"));
                for file in matching(&base.join(pattern)).map_err(|e| format!("{place}: {e}"))? {
                    add(&file, depth + 1, lines)?;
                }
                continue;
            }
            _ => return Err(format!("{place}: `{kind}`: use required, optional or include")),
        };
        let (plugin, args) = rest.split_first().ok_or_else(|| format!("{place}: {kind} needs a plugin"))?;
        lines.push(Line { required, path: find(plugin), args: args.to_vec(), place });
        if lines.len() > PLUGINS_MAX {
            return Err(wrong(&format!("more than {PLUGINS_MAX} plugins")));
        }
    }
    Ok(())
}

/// Returns the file of a plugin: a path as it is, and a name in the usual folders.
fn find(plugin: &str) -> PathBuf {
    let named = Path::new(plugin);
    let mut there = FOLDERS.iter().map(|folder| Path::new(folder).join(named));
    if named.is_absolute() { named.to_owned() } else { there.find(|path| path.exists()).unwrap_or(named.to_owned()) }
}

/// Splits a line into words. Quotes, single or double, hold blanks together; a comment begins with `#`. None: a quote is
/// not closed.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) = Default::default();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (letter, Some(end)) if letter == end => quote = None,
            ('#', None) => break,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('\\', None) => word.get_or_insert_default().push(letters.next().unwrap_or('\\')),
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Returns the files that a path stands for, of which the name may have `*` and `?`, in the order of their names.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.contains(['*', '?']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    let entries = match fs::read_dir(folder) {
        // A folder of additions may be missing.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| format!("{}: {e}", folder.display()))?,
    };
    let fits = |path: &PathBuf| {
        let own = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        fits(&name.chars().collect::<Vec<_>>(), &own.chars().collect::<Vec<_>>()) && !own.starts_with('.')
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(fits).collect();
    found.sort();
    Ok(found)
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        (Some(('?', rest)), Some((_, left))) => fits(rest, left),
        (Some((letter, rest)), Some((own, left))) => letter == own && fits(rest, left),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{read, words};
    use crate::hook::tests::Folder;

    #[test]
    fn lines_have_words_quotes_and_comments() {
        let split = |line| words(line).map(|words| words.join("|"));
        assert_eq!(split("required  /a.so x=1 # no").as_deref(), Some("required|/a.so|x=1"));
        assert_eq!(split("optional a.so \"b c\" d'e f'g \"\"").as_deref(), Some("optional|a.so|b c|de fg|"));
        assert_eq!(split("a \\# b").as_deref(), Some("a|#|b"));
        assert_eq!(split(" # all").as_deref(), Some(""));
        assert_eq!(split("a 'b"), None);
    }

    #[test]
    fn files_are_included_by_name_and_pattern_in_order() {
        let dir = Folder::new("plugstack");
        let file = |name: &str, text: &str| fs::write(dir.0.join(name), text).unwrap();
        fs::create_dir(dir.0.join("d")).unwrap();
        file("plugstack.conf", "required /a.so one\ninclude d/*.conf\ninclude last\ninclude none/*\n");
        file("d/20.conf", "optional /c.so\n");
        file("d/10.conf", "optional /b.so\n");
        file("d/other", "nonsense\n");
        file("last", "optional d.so");
        let lines = read(&dir.0.join("plugstack.conf")).unwrap();
        let shown: Vec<_> = lines.iter().map(|l| (l.required, l.path.to_str().unwrap(), l.args.len())).collect();
        assert_eq!(shown, [(true, "/a.so", 1), (false, "/b.so", 0), (false, "/c.so", 0), (false, "d.so", 0)]);
        assert!(lines[1].place.ends_with("d/10.conf:1"));
        assert!(super::faults(&lines)[0].contains("plugstack.conf:1: /a.so: "), "{:?}", super::faults(&lines));
        file("a.so", "\0slurm_spank_exit\0slurm_spank_job_epilog\0slurm_spank_job_prologue\0");
        file("plugstack.conf", &format!("optional {}\noptional /b.so\n", dir.0.join("a.so").display()));
        let wanted = super::Wanted::of(&read(&dir.0.join("plugstack.conf")).unwrap());
        assert_eq!(wanted, super::Wanted { epilog: true, ..super::Wanted::default() });
        let fails = |text: &str, says: &str| {
            file("plugstack.conf", text);
            let error = read(&dir.0.join("plugstack.conf")).unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        fails("needed /a.so\n", "plugstack.conf:1: `needed`: use required, optional or include");
        fails("\nrequired\n", "plugstack.conf:2: required needs a plugin");
        fails("include plugstack.conf\n", "without end");
        fails("include none\n", "none: ");
        fails("required '/a.so\n", "a quote is not closed");
    }
}
