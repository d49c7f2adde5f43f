//! Columns of listings: the names, titles and texts of a row's fields.

pub mod accounting;
pub mod entities;
mod fields;
pub mod groups;
pub mod jobs;
pub mod records;
pub mod settings;
