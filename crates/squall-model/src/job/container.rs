//! The container in which the tasks of a step run: `--container` (an OCI bundle) and `--container-image`.

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
}

/// A folder or file of the node that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Mount {
    /// Path on the node.
    #[n(0)]
    pub source: String,
    /// Path in the container.
    #[n(1)]
    pub target: String,
    /// Whether the container can't write there.
    #[n(2)]
    #[cbor(default)]
    pub read_only: bool,
}

impl Container {
    /// Returns whether tasks run in a container.
    pub fn is_asked_for(&self) -> bool {
        self.bundle.is_some() || self.image.is_some() || self.name.is_some()
    }

    /// Returns the first option that is given without a container to which it could apply. None: there is none.
    pub fn stray(&self) -> Option<&'static str> {
        let of = [("container-mounts", !self.mounts.is_empty()), ("container-workdir", self.work_dir.is_some())];
        of.into_iter().find(|(_, given)| *given && !self.is_asked_for()).map(|(option, _)| option)
    }
}

impl Mount {
    /// Reads `--container-mounts`: `SOURCE[:TARGET[:ro|rw]]`, separated by commas. Err: the malformed one.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let one = |word: &str| {
            let mut parts = word.split(':');
            let source = parts.next().unwrap_or_default();
            let target = parts.next().unwrap_or(source);
            let read_only = match parts.next() {
                None | Some("rw") => false,
                Some("ro") => true,
                Some(_) => return Err(word.to_owned()),
            };
            if !source.starts_with('/') || !target.starts_with('/') || parts.next().is_some() {
                return Err(word.to_owned());
            }
            Ok(Self { source: source.to_owned(), target: target.to_owned(), read_only })
        };
        text.split(',').filter(|word| !word.is_empty()).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Container, Mount};

    #[test]
    fn mounts_have_absolute_paths_and_may_be_read_only() {
        let mount =
            |source: &str, target: &str, read_only| Mount { source: source.into(), target: target.into(), read_only };
        assert_eq!(
            Mount::parse_all("/a,/b:/c,/d:/e:ro"),
            Ok(vec![mount("/a", "/a", false), mount("/b", "/c", false), mount("/d", "/e", true)])
        );
        for wrong in ["a", "/a:b", "/a:/b:rx", "/a:/b:ro:x"] {
            assert_eq!(Mount::parse_all(wrong), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn details_need_a_container() {
        let container = Container { work_dir: Some("/w".into()), ..Container::default() };
        assert_eq!(container.stray(), Some("container-workdir"));
        assert_eq!(Container { bundle: Some("/b".into()), ..container }.stray(), None);
    }
}
