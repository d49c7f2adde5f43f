//! A page's files and commands with the output that it shows, read from Markdown.

/// Something to do on the way through a page.
#[derive(Debug)]
pub(crate) enum Item {
    /// A block with a title: a file that the reader writes.
    File {
        /// Machine of the file. None: the page's first.
        host: Option<String>,
        /// Absolute, or relative to the home of the user alice.
        path: String,
        /// The content.
        text: String,
    },
    /// A command after a prompt.
    Command(Command),
}

/// A command with what the page shows after it.
#[derive(Debug)]
pub(crate) struct Command {
    /// Line of the prompt in the page, from 1.
    pub(crate) line: usize,
    /// The prompt, as `# ` or `head$ `.
    prompt: String,
    /// Machine on which it runs. None: the page's first.
    pub(crate) host: Option<String>,
    /// User that runs it.
    pub(crate) user: String,
    /// The command, maybe of several lines.
    pub(crate) text: String,
    /// Lines of output.
    pub(crate) shown: Vec<String>,
    /// Exit status that it must have.
    pub(crate) exit: i32,
}

/// The users of the machines. Prompts may have their names.
const USERS: [&str; 3] = ["root", "alice", "bob"];

/// Commands that only look. They are repeated until the output is as shown, as a reader would who has just submitted.
const LOOKS: [&str; 20] = [
    "squeue",
    "sinfo",
    "sacct",
    "sstat",
    "sprio",
    "sshare",
    "sreport",
    "sdiag",
    "seff",
    "scontrol show",
    "squall why",
    "squall report",
    "squall top",
    "squall status",
    "cat",
    "ls",
    "head",
    "tail",
    "grep",
    "curl",
];

impl Command {
    /// Returns the command as the page has it.
    pub(crate) fn as_written(&self) -> String {
        format!("{}{}", self.prompt, self.text)
    }

    /// Returns the first word of the command.
    pub(crate) fn program(&self) -> &str {
        self.text.split_whitespace().next().unwrap_or_default()
    }

    /// Returns whether the command changes nothing, so that it can be repeated.
    pub(crate) fn only_looks(&self) -> bool {
        let looks =
            |word: &&str| self.text.strip_prefix(*word).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        LOOKS.iter().any(looks) && !self.text.contains(['>', ';', '&'])
    }

    /// Returns what is wrong with the output or the exit status. None: all is as shown.
    pub(crate) fn complaint(&self, output: &str, exit: i32) -> Option<String> {
        let mut real = output.lines();
        for shown in self.shown.iter().filter(|shown| !shown.trim().is_empty() && shown.trim() != "...") {
            let anywhere = self.text.starts_with("srun ") || is_labelled(shown);
            let mut all = output.lines();
            let found = if anywhere { &mut all } else { &mut real }.any(|line| fits(shown, line));
            if !found {
                return Some(format!("not in the output, at least not there:\n    {shown}"));
            }
        }
        (exit != self.exit).then(|| format!("exit status {exit}, not {}", self.exit))
    }
}

/// Returns whether a line has a task's number, as with `srun --label`. Tasks write in any order.
fn is_labelled(line: &str) -> bool {
    line.trim().split_once(": ").is_some_and(|(label, _)| label.parse::<u32>().is_ok())
}

/// Returns whether a line of output is as shown. Numbers and sets of numbers are alike, and so are runs of blanks;
/// `...` stands for any text.
fn fits(shown: &str, line: &str) -> bool {
    let (shown, line) = (plain(shown), plain(line));
    let pieces: Vec<&str> = shown.split("...").collect();
    let [first, middle @ .., last] = &pieces[..] else { return shown == line };
    let rest = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let rest = rest.and_then(|rest| middle.iter().try_fold(rest, |rest, piece| Some(rest.split_once(piece)?.1)));
    rest.is_some()
}

/// Returns the line with one `0` for each number or set of numbers in brackets and one blank for each run of blanks,
/// without blanks at its ends. Example: `n[1,3-4]   2` becomes `n0 0`, as which nodes a job gets depends on timing.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line.trim();
    while let Some(c) = rest.chars().next() {
        let width = c.len_utf8();
        let set = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')).filter(|(set, _)| is_set(set));
        let c = if set.is_some() || c.is_ascii_digit() {
            '0'
        } else if c.is_whitespace() {
            ' '
        } else {
            c
        };
        rest = set.map_or(&rest[width..], |(_, after)| after);
        if !(matches!(c, '0' | ' ') && plain.ends_with(c)) {
            plain.push(c);
        }
    }
    plain
}

/// Returns whether a text is a set of numbers, such as `1,3-4`.
fn is_set(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '-'))
}

/// Returns what a page does, from top to bottom. The error names the line.
pub(crate) fn read(text: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let inside: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| line.trim() != "```")
            .map(|(at, line)| (at + 1, if line.trim().is_empty() { "" } else { line.get(indent..).unwrap_or(line) }))
            .collect();
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default();
        if let Some(title) = words.find_map(|word| word.strip_prefix("title=")) {
            let title = title.trim_matches('"');
            let (host, path) = title
                .split_once(":/")
                .map_or((None, title), |(host, _)| (Some(host.to_owned()), &title[host.len() + 1..]));
            let text = inside.iter().flat_map(|(_, line)| [*line, "\n"]).collect();
            items.push(Item::File { host, path: path.to_owned(), text });
        } else if language == "console" {
            items.extend(commands(&inside).map_err(|e| format!("line {}: {e}", at + 1))?);
        }
    }
    Ok(items)
}

/// Returns the commands of a block, each with its output.
fn commands(lines: &[(usize, &str)]) -> Result<Vec<Item>, String> {
    let mut commands: Vec<Command> = Vec::new();
    let mut lines = lines.iter().peekable();
    while let Some((at, line)) = lines.next() {
        if let Some((prompt, host, user)) = prompt(line) {
            let mut text = line[prompt.len()..].to_owned();
            while is_open(&text) {
                let (_, next) = lines.next().ok_or_else(|| format!("`{text}` does not end"))?;
                text.extend(["\n", *next]);
            }
            commands.push(Command { line: *at, prompt, host, user, text, shown: Vec::new(), exit: 0 });
            continue;
        }
        let command = commands.last_mut().ok_or("it begins without a prompt (`$ `, `# `, `HOST$ ` or `HOST# `)")?;
        let exit = line.trim().strip_prefix("[exit ").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
        match exit {
            Some(exit) => command.exit = exit,
            None => command.shown.push((*line).to_owned()),
        }
    }
    Ok(commands.into_iter().map(Item::Command).collect())
}

/// Returns the prompt with which a line begins, the machine that it names and the user. None: it has no prompt.
fn prompt(line: &str) -> Option<(String, Option<String>, String)> {
    let (name, _) = line.split_once(['$', '#'])?;
    let sign = line[name.len()..].chars().next()?;
    let prompt = format!("{name}{sign} ");
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '@';
    if !line.starts_with(&prompt) || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (user, host) = match name.split_once('@') {
        Some((user, host)) => (user, host),
        None if USERS.contains(&name) => (name, ""),
        None => (if sign == '#' { "root" } else { "alice" }, name),
    };
    Some((prompt, Some(host.to_owned()).filter(|host| !host.is_empty()), user.to_owned()))
}

/// Returns whether a command goes on in the next line: after a backslash, or in a here-document.
fn is_open(text: &str) -> bool {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let here = first.split_once("<<").filter(|(_, word)| !word.starts_with('<')).map(|(_, word)| {
        let word = word.trim_start_matches(['-', ' ']);
        word.split([' ', '>', '|', ';']).next().unwrap_or_default().trim_matches(['\'', '"'])
    });
    match here {
        Some(word) => !rest.lines().any(|line| line.trim() == word),
        None => text.ends_with('\\'),
    }
}
