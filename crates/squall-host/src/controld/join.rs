//! Makes this machine a further controller of a cluster: gets keys and configuration from a controller that runs.

use std::io;
use std::path::Path;
use std::time::Duration;

use squall_files::durable;
use squall_files::place::{CONFIG_FILES, Place};
use squall_model::wire::join::{CONTROLLER_TOKEN, JoinAnswer, Question, StoredFile};
use squall_model::wire::{Hello, Proof, Role};
use tokio::time::timeout;

use crate::bearer;
use crate::leader::Controllers;
use crate::link;
use crate::noise::KeyPair;
use crate::trust::{Token, Trust};

/// Folder of keys, in paths of files that controllers send each other.
const KEYS: &str = "keys";
/// How long to look for a controller that leads.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for the answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Whether the state folder is that of the controller `name` of a cluster already.
pub fn has_joined(place: &Place, name: &str) -> bool {
    place.config().exists() && place.controller_name().as_deref() == Some(name)
}

/// Joins the cluster of the controllers at `addresses` as its controller `name`, with an invitation. Blocks. Afterwards
/// the state folder has the keys that all controllers have, and the configuration.
pub fn join(place: &Place, name: &str, addresses: Vec<String>, token: &Token) -> io::Result<()> {
    if [place.journal(), place.joined(), place.config()].iter().any(|path| path.exists()) {
        let dir = place.dir().display();
        return Err(io::Error::other(format!("{dir} belongs to a cluster already: use --state for another folder")));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let files = runtime.block_on(ask(name, addresses, token))?;
    let trust = Trust::of(place);
    // The configuration comes last: a folder with one is complete.
    let (keys, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.path.starts_with(KEYS));
    for StoredFile { path, bytes } in keys {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        trust.write(&parts, &bytes)?;
    }
    place.note_controller_name(name)?;
    for StoredFile { path, bytes } in others.into_iter().rev() {
        if CONFIG_FILES.contains(&path.as_str()) {
            durable::write(&place.dir().join(path), &bytes, 0o644)?;
        }
    }
    Ok(())
}

async fn ask(name: &str, addresses: Vec<String>, token: &Token) -> io::Result<Vec<StoredFile>> {
    let proof = Proof::Scheme(CONTROLLER_TOKEN.to_owned(), token.secret.to_vec());
    let controllers = Controllers::new(name, KeyPair::generate()?, token.controller, addresses);
    let hello = Hello { proof, ..Hello::new(Role::Enquirer(name.to_owned())) };
    let mut met = controllers.call(&hello, PATIENCE).await?;
    link::write(&mut met.writer, &Question::Controller).await?;
    let late = |_| io::Error::other("the controller does not answer");
    match timeout(ANSWER_TIME, link::read::<JoinAnswer>(&mut met.reader)).await.map_err(late)?? {
        Some(JoinAnswer::Controller(files)) => Ok(files),
        Some(JoinAnswer::Refused(reason) | JoinAnswer::NotNow(reason)) => Err(io::Error::other(reason)),
        Some(JoinAnswer::Charter { .. } | JoinAnswer::Peer(_) | JoinAnswer::TokenKey(_)) => {
            Err(io::ErrorKind::InvalidData.into())
        }
        None => Err(io::Error::other("the controller hung up")),
    }
}

/// Returns the files that a further controller needs: keys, configuration and what stands beside it.
pub(super) fn files(place: &Place) -> io::Result<Vec<StoredFile>> {
    bearer::signing_key(&Trust::of(place))?;
    let keys = Trust::of(place).for_controller()?.into_iter();
    let mut files: Vec<StoredFile> =
        keys.map(|(path, bytes)| StoredFile { path: format!("{KEYS}/{path}"), bytes: bytes.into() }).collect();
    for name in CONFIG_FILES {
        let path = place.config().with_file_name(name);
        match std::fs::read(Path::new(&path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            read => files.push(StoredFile { path: name.to_owned(), bytes: read?.into() }),
        }
    }
    Ok(files)
}
