//! SQLite files with a checksum in each page: computed when the page is written, verified when it is read.
//!
//! SQLite can reserve some bytes at the end of each page for such a VFS layer; its own `cksumvfs` uses them in the same
//! way. This layer is SQLite's default one with three functions of its main files replaced. Reading a page with a wrong
//! checksum returns `SQLITE_CORRUPT`. Files without checksums are read unverified.

use std::ffi::{CStr, c_int, c_void};
use std::io::{self, Read};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use rusqlite::{Connection, OpenFlags, ffi};

/// Size of a page, bytes: SQLite's default.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes at the end of a page that hold its checksum.
const SUM_BYTES: usize = 4;
/// Number of the page with the bytes by which SQLite locks a file, at 1 GiB: it is never read or written.
const LOCK_PAGE: u32 = (1 << 30) / PAGE_BYTES as u32 + 1;
/// Offset in the file's header of the number of reserved bytes per page.
const RESERVED_AT: usize = 20;
/// Offset in the file's header of the application id: a second mark of files with checksums, in case the first is
/// damaged.
const APPLICATION_AT: usize = 68;
/// Application id of files with checksums.
const APPLICATION: u32 = 0x5371_4c31;
/// Bytes of the file's header.
const HEADER_BYTES: usize = 100;

const NAME: &CStr = c"squall";

/// SQLite's functions for main files, and the same table with three of them replaced.
struct Methods {
    own: ffi::sqlite3_io_methods,
    checked: ffi::sqlite3_io_methods,
}

static METHODS: OnceLock<Methods> = OnceLock::new();
static REGISTERED: OnceLock<c_int> = OnceLock::new();

/// Opens a database, and locks it against other processes from now on. A new one gets pages with checksums.
pub(crate) fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let registered = *REGISTERED.get_or_init(register);
    if registered != ffi::SQLITE_OK {
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(registered), None));
    }
    let db = Connection::open_with_flags_and_vfs(path, flags, NAME)?;
    // Before anything is read: SQLite locks a file that it knows already only when it writes.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let mut reserved = SUM_BYTES as c_int;
    // SAFETY: the connection is open, "main" names its file, and this operation reads and writes one int.
    unsafe {
        let reserved = ptr::from_mut(&mut reserved).cast::<c_void>();
        ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_RESERVE_BYTES, reserved);
    }
    if db.pragma_query_value(None, "page_count", |r| r.get::<_, i64>(0))? == 0 {
        db.pragma_update(None, "page_size", PAGE_BYTES as i64)?;
        db.pragma_update(None, "application_id", APPLICATION)?;
    }
    Ok(db)
}

/// The file of an open database, read from its start past SQLite's cache and without a look at checksums.
///
/// It reads through SQLite's own descriptor. Opening the file once more is no way: closing any descriptor of a file
/// drops all POSIX locks of the process on it, SQLite's among them.
pub(crate) struct Raw<'a> {
    file: *mut ffi::sqlite3_file,
    read: unsafe extern "C" fn(*mut ffi::sqlite3_file, *mut c_void, c_int, i64) -> c_int,
    at: u64,
    length: u64,
    _db: PhantomData<&'a Connection>,
}

impl<'a> Raw<'a> {
    /// Returns the file of a database, as long as it is now. What is only in the write-ahead log is not in it.
    pub(crate) fn of(db: &'a Connection) -> io::Result<Self> {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        let mut length = 0;
        // SAFETY: the connection is open, "main" names its file, and this operation writes one pointer, to a file that
        // lives as long as the connection. Its methods are SQLite's, or our table, beside which SQLite's stand.
        unsafe {
            let to = ptr::from_mut(&mut file).cast::<c_void>();
            let code = ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_FILE_POINTER, to);
            let methods = file.as_ref().map_or(ptr::null(), |file| file.pMethods);
            let ours = METHODS.get().filter(|ours| ptr::eq(methods, &raw const ours.checked));
            let methods = ours.map(|ours| &ours.own).or(methods.as_ref());
            let Some((read, size)) = methods.and_then(|own| own.xRead.zip(own.xFileSize)) else {
                return Err(io::Error::other(ffi::Error::new(code)));
            };
            match size(file, &raw mut length) {
                ffi::SQLITE_OK => {}
                code => return Err(io::Error::other(ffi::Error::new(code))),
            }
            Ok(Self { file, read, at: 0, length: length as u64, _db: PhantomData })
        }
    }
}

impl Read for Raw<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        // An amount is an int.
        let amount = left.min(to.len()).min(1 << 30);
        if amount == 0 {
            return Ok(0);
        }
        // SAFETY: the file is open as long as the borrowed connection, and so many bytes may be written.
        match unsafe { (self.read)(self.file, to.as_mut_ptr().cast(), amount as c_int, self.at as i64) } {
            ffi::SQLITE_OK => {
                self.at += amount as u64;
                Ok(amount)
            }
            code => Err(io::Error::other(ffi::Error::new(code))),
        }
    }
}

/// Whether the pages of this file have checksums. None: the file can't be read, or is empty.
pub(crate) fn has_sums(mut file: impl Read) -> Option<bool> {
    let mut head = [0; HEADER_BYTES];
    file.read_exact(&mut head).ok()?;
    Some(is_checked(&head))
}

/// Returns the numbers (from 1) of the pages with a wrong checksum, in a file with checksums. The file must not be
/// changed meanwhile.
pub(crate) fn damaged(mut file: impl Read) -> io::Result<Vec<u32>> {
    const PAGES_AT_ONCE: usize = 256;
    let mut buffer = vec![0; PAGES_AT_ONCE * PAGE_BYTES];
    let (mut found, mut number) = (Vec::new(), 0);
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read(&mut buffer[filled..])? {
                0 => break,
                more => filled += more,
            }
        }
        for page in buffer[..filled].chunks_exact(PAGE_BYTES) {
            number += 1;
            if !is_intact(number, page) {
                found.push(number);
            }
        }
        if filled < buffer.len() {
            return Ok(found);
        }
    }
}

fn is_checked(head: &[u8; HEADER_BYTES]) -> bool {
    usize::from(head[RESERVED_AT]) == SUM_BYTES || head[APPLICATION_AT..APPLICATION_AT + 4] == APPLICATION.to_be_bytes()
}

/// Returns the checksum of a page. It includes the page's number, so that a page at a wrong place is detected.
fn sum(number: u32, page: &[u8]) -> [u8; SUM_BYTES] {
    let seed = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(seed, &page[..PAGE_BYTES - SUM_BYTES]).to_le_bytes()
}

/// Whether a page has its checksum. SQLite never writes the page that it locks, so that has none.
fn is_intact(number: u32, page: &[u8]) -> bool {
    number == LOCK_PAGE || page[PAGE_BYTES - SUM_BYTES..] == sum(number, page)
}

/// Writes the checksum into a page.
pub(crate) fn seal(number: u32, page: &mut [u8]) {
    let sum = sum(number, page);
    page[PAGE_BYTES - SUM_BYTES..].copy_from_slice(&sum);
}

/// Returns the number of the page at an offset, if the bytes are one whole page.
fn page_at(amount: c_int, offset: i64) -> Option<u32> {
    let whole = amount == PAGE_BYTES as c_int && offset % PAGE_BYTES as i64 == 0;
    whole.then(|| (offset / PAGE_BYTES as i64) as u32 + 1)
}

fn register() -> c_int {
    // SAFETY: the default layer is there once SQLite is initialised, and stays for ever, as does our copy. The copy's
    // functions get the copy as their argument, which they use as they would the original.
    unsafe {
        let code = ffi::sqlite3_initialize();
        let default = ffi::sqlite3_vfs_find(ptr::null());
        if code != ffi::SQLITE_OK || default.is_null() {
            return ffi::SQLITE_ERROR;
        }
        let mut layer = *default;
        layer.pNext = ptr::null_mut();
        layer.zName = NAME.as_ptr();
        layer.xOpen = Some(open_file);
        ffi::sqlite3_vfs_register(Box::into_raw(Box::new(layer)), 0)
    }
}

/// Opens a file for SQLite. If it is a main database with checksums, or a new one, its pages are checked from then on.
///
/// # Safety
///
/// To be called by SQLite, with a layer, a name, room for a file, and where to put the flags.
unsafe extern "C" fn open_file(
    layer: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: what SQLite hands over goes on to its default layer, which then has set the methods of the file.
    unsafe {
        let default = ffi::sqlite3_vfs_find(ptr::null());
        let Some(open) = default.as_ref().and_then(|default| default.xOpen) else { return ffi::SQLITE_CANTOPEN };
        let code = open(layer, name, file, flags, out);
        if code != ffi::SQLITE_OK || flags & ffi::SQLITE_OPEN_MAIN_DB == 0 {
            return code;
        }
        let own = *(*file).pMethods;
        let methods = METHODS.get_or_init(|| {
            let (read, write) = (Some(read_page as _), Some(write_page as _));
            let checked = ffi::sqlite3_io_methods {
                xRead: read,
                xWrite: write,
                xDeviceCharacteristics: Some(characteristics),
                ..own
            };
            Methods { own, checked }
        });
        let mut head = [0; HEADER_BYTES];
        let read = own.xRead.map(|read| read(file, head.as_mut_ptr().cast(), HEADER_BYTES as c_int, 0));
        // A new file can't be read yet.
        if read != Some(ffi::SQLITE_OK) || is_checked(&head) {
            (*file).pMethods = &raw const methods.checked;
        }
        code
    }
}

/// Reads bytes for SQLite. Fails with `SQLITE_CORRUPT` if they are a page with a wrong checksum.
///
/// # Safety
///
/// To be called by SQLite, with an open file, and room for `amount` bytes.
unsafe extern "C" fn read_page(file: *mut ffi::sqlite3_file, to: *mut c_void, amount: c_int, offset: i64) -> c_int {
    let Some(read) = METHODS.get().and_then(|methods| methods.own.xRead) else { return ffi::SQLITE_IOERR };
    // SAFETY: the arguments go on as they came. After SQLITE_OK so many bytes are filled.
    unsafe {
        let code = read(file, to, amount, offset);
        match page_at(amount, offset) {
            Some(number) if code == ffi::SQLITE_OK => {
                let page = std::slice::from_raw_parts(to.cast::<u8>(), PAGE_BYTES);
                if is_intact(number, page) { code } else { ffi::SQLITE_CORRUPT }
            }
            _ => code,
        }
    }
}

/// Writes bytes for SQLite. A whole page gets its checksum.
///
/// # Safety
///
/// To be called by SQLite, with an open file, and `amount` bytes.
unsafe extern "C" fn write_page(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let Some(write) = METHODS.get().and_then(|methods| methods.own.xWrite) else { return ffi::SQLITE_IOERR };
    // SAFETY: so many bytes can be read. They go on as they came, or from a copy on the stack.
    unsafe {
        let Some(number) = page_at(amount, offset) else { return write(file, from, amount, offset) };
        let mut page = [0; PAGE_BYTES];
        page.copy_from_slice(std::slice::from_raw_parts(from.cast::<u8>(), PAGE_BYTES));
        seal(number, &mut page);
        write(file, page.as_ptr().cast(), amount, offset)
    }
}

/// Turns off reading parts of pages, as only whole pages can be checked.
///
/// # Safety
///
/// To be called by SQLite, with an open file.
unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    let own = METHODS.get().and_then(|methods| methods.own.xDeviceCharacteristics);
    // SAFETY: the argument goes on as it came.
    own.map_or(0, |own| unsafe { own(file) }) & !ffi::SQLITE_IOCAP_SUBPAGE_READ
}

#[cfg(test)]
mod tests {
    use super::{PAGE_BYTES, is_intact, seal};

    #[test]
    fn a_database_of_more_than_a_gib_has_one_page_without_a_checksum() {
        let lock = 262_145;
        assert!(is_intact(lock, &[0; PAGE_BYTES]));
        for number in [lock - 1, lock + 1] {
            let mut page = [0; PAGE_BYTES];
            assert!(!is_intact(number, &page));
            seal(number, &mut page);
            assert!(is_intact(number, &page));
        }
    }
}
