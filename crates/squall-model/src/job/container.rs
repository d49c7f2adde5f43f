//! The container in which the tasks of a step run: `--container` (an OCI bundle) and `--container-image`.

use std::fmt;

use minicbor::{Decode, Encode};

/// What a job or step asks for about its container. All empty: its tasks run without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Container {
    /// `--container`: folder of an OCI bundle, which has `config.json` and a root file system.
    #[n(0)]
    pub bundle: Option<String>,
    /// `--container-image`: an image that the node's image runtime knows, or the file of one.
    #[n(1)]
    pub image: Option<String>,
    /// `--container-mounts`: further folders and files that the container sees.
    #[n(2)]
    #[cbor(default)]
    pub mounts: Vec<Mount>,
    /// `--container-workdir`: the tasks' working directory in the container.
    #[n(3)]
    pub work_dir: Option<String>,
    /// `--container-name`: a container that is kept on the node under this name.
    #[n(4)]
    pub name: Option<String>,
    /// `--container-mount-home`: whether the container sees the user's home. None: as the runtime has it.
    #[n(5)]
    pub mount_home: Option<bool>,
    /// `--container-writable`: whether the root file system is writable. None: as the bundle or the runtime has it.
    #[n(6)]
    pub writable: Option<bool>,
    /// `--container-remap-root`: whether the user is root inside. None: as the bundle or the runtime has it.
    #[n(7)]
    pub remap_root: Option<bool>,
    /// `--container-entrypoint`: whether the image's entrypoint runs before the command. None: it doesn't.
    #[n(8)]
    pub entrypoint: Option<bool>,
    /// `--container-env`: variables of which the job's value counts, and not that of the image or bundle.
    #[n(9)]
    #[cbor(default)]
    pub env: Vec<String>,
    /// `--container-save`: file to which the container is written when the task has ended.
    #[n(10)]
    pub save: Option<String>,
    /// `--container-name=NAME:create`: a container of this name must not exist yet.
    #[n(11)]
    #[cbor(default)]
    pub create: bool,
}

/// A folder or file of the node that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Mount {
    /// Path on the node, which may be relative to the task's working directory, or [`TMPFS`] or [`UMOUNT`].
    #[n(0)]
    pub source: String,
    /// Path in the container.
    #[n(1)]
    pub target: String,
    /// Whether the container can't write there.
    #[n(2)]
    #[cbor(default)]
    pub read_only: bool,
    /// Further options of the mount: `nosuid`, `rprivate`, `size=1G`.
    #[n(3)]
    #[cbor(default)]
    pub flags: Vec<String>,
}

/// Source of a mount that is a file system in memory.
pub const TMPFS: &str = "tmpfs";

/// Source of a mount that takes the one at its target away.
pub const UMOUNT: &str = "umount";

/// Options of mounts without a value, beside `ro` and `rw`.
const MOUNT_FLAGS: [&str; 22] = [
    "bind",
    "dev",
    "exec",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "nofail",
    "nosuid",
    "private",
    "rbind",
    "relatime",
    "rprivate",
    "rshared",
    "rslave",
    "runbindable",
    "shared",
    "slave",
    "strictatime",
    "suid",
    "sync",
    "unbindable",
];

impl Container {
    /// Returns the variables that ask for this container of an image again, as pyxis names them.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let flag = |on: &Option<bool>| on.map(|on| u8::from(on).to_string());
        let list = |words: Vec<String>| Some(words.join(",")).filter(|list| !list.is_empty());
        let name = |name: &String| if self.create { format!("{name}:create") } else { name.clone() };
        [
            ("PYXIS_CONTAINER_IMAGE", self.image.clone()),
            ("PYXIS_CONTAINER_MOUNTS", list(self.mounts.iter().map(Mount::to_string).collect())),
            ("PYXIS_CONTAINER_WORKDIR", self.work_dir.clone()),
            ("PYXIS_CONTAINER_NAME", self.name.as_ref().map(name)),
            ("PYXIS_CONTAINER_MOUNT_HOME", flag(&self.mount_home)),
            ("PYXIS_CONTAINER_WRITABLE", flag(&self.writable)),
            ("PYXIS_CONTAINER_REMAP_ROOT", flag(&self.remap_root)),
            ("PYXIS_CONTAINER_ENTRYPOINT", flag(&self.entrypoint)),
            ("PYXIS_CONTAINER_ENV", list(self.env.clone())),
            ("PYXIS_CONTAINER_SAVE", self.save.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// Returns whether tasks run in a container.
    pub fn is_asked_for(&self) -> bool {
        self.bundle.is_some() || self.image.is_some() || self.name.is_some()
    }
}

impl Mount {
    /// Reads `--container-mounts`: `SOURCE[:TARGET[:FLAG[+FLAG...]]]`, separated by commas. Err: the malformed one.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let words = text.split(',').filter(|word| !word.is_empty());
        words.map(|word| Self::parse(word).ok_or_else(|| word.to_owned())).collect()
    }

    fn parse(word: &str) -> Option<Self> {
        let mut parts = word.split(':');
        let source = parts.next()?;
        let target = parts.next().unwrap_or(source);
        let flags = parts.next().unwrap_or_default();
        let path = |text: &str| text.starts_with(['/', '.']);
        if !(path(source) || [TMPFS, UMOUNT].contains(&source)) || !path(target) || parts.next().is_some() {
            return None;
        }
        let mut mount = Self { source: source.to_owned(), target: inside(target)?, ..Self::default() };
        for flag in flags.split('+').filter(|flag| !flag.is_empty()) {
            match flag {
                "ro" => mount.read_only = true,
                "rw" => mount.read_only = false,
                _ if MOUNT_FLAGS.contains(&flag) || has_value(flag) => mount.flags.push(flag.to_owned()),
                _ => return None,
            }
        }
        Some(mount)
    }
}

impl fmt::Display for Mount {
    /// Writes the mount as an entry of `--container-mounts`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.target)?;
        let flags = self.read_only.then_some("ro").into_iter().chain(self.flags.iter().map(String::as_str));
        for (at, flag) in flags.enumerate() {
            write!(f, "{}{flag}", if at == 0 { ':' } else { '+' })?;
        }
        Ok(())
    }
}

/// Returns a path in a container, from its root. None: it leads out of the container.
fn inside(target: &str) -> Option<String> {
    if target.split('/').any(|part| part == "..") {
        return None;
    }
    let rest = target.strip_prefix('.').unwrap_or(target);
    Some(format!("/{}", rest.trim_start_matches('/')))
}

/// Returns whether this is an option of a mount with a value: `size=1G`.
fn has_value(flag: &str) -> bool {
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.%/".contains(c));
    flag.split_once('=').is_some_and(|(name, value)| plain(name) && plain(value))
}

#[cfg(test)]
mod tests {
    use super::{Container, Mount};
    use crate::encoding::from_slice;

    #[test]
    fn mounts_have_absolute_paths_and_may_be_read_only() {
        let mount = |source: &str, target: &str, read_only| Mount {
            source: source.into(),
            target: target.into(),
            read_only,
            ..Mount::default()
        };
        assert_eq!(
            Mount::parse_all("/a,/b:/c,/d:/e:ro"),
            Ok(vec![mount("/a", "/a", false), mount("/b", "/c", false), mount("/d", "/e", true)])
        );
        for wrong in ["a", "/a:b", "/a:/b:rx", "/a:/b:ro:x", "tmpfs", "/a:../b", "devpts:/x", "/a:", ":/a"] {
            assert_eq!(Mount::parse_all(wrong), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn what_earlier_releases_wrote_is_read() {
        let bytes = [&[0x85, 0xf6, 0x61, b'i', 0x81, 0x83, 0x62][..], b"/a\x62/b\xf5", &[0xf6, 0x61, b'n']].concat();
        let mount = Mount { source: "/a".into(), target: "/b".into(), read_only: true, ..Mount::default() };
        let old =
            Container { image: Some("i".into()), mounts: vec![mount], name: Some("n".into()), ..Container::default() };
        assert_eq!(from_slice::<Container>(&bytes), Ok(old));
    }

    // faults.md P1: what pyxis mounts.
    #[test]
    fn p1_mounts_are_relative_in_memory_or_taken_away_and_have_flags() {
        let read = |text: &str| Mount::parse_all(text).unwrap().remove(0);
        let of = |mount: Mount| (mount.source, mount.target, mount.read_only, mount.flags.join(" "));
        assert_eq!(of(read("./:/mnt")), ("./".into(), "/mnt".into(), false, String::new()));
        assert_eq!(of(read("/tmp:./x:unbindable+ro")), ("/tmp".into(), "/x".into(), true, "unbindable".into()));
        assert_eq!(of(read("tmpfs:/scratch:size=1G")), ("tmpfs".into(), "/scratch".into(), false, "size=1G".into()));
        assert_eq!(of(read("umount:/root")).0, "umount");
        for text in ["/a:/b", "/a:/b:ro", "/a:/b:ro+nosuid", "tmpfs:/t:size=1G+noexec"] {
            assert_eq!(read(text).to_string(), text);
        }
    }
}
