//! What differs between the SQL of SQLite, in which all statements are written, and that of PostgreSQL.
//!
//! In the statements, keywords are in capitals and names are not, so names that are keywords of PostgreSQL can be told:
//! they are quoted. Parameters get PostgreSQL's sign. SQLite's `max` and `min` of two values are functions of the schema.

/// Names of columns that PostgreSQL reserves.
const RESERVED: [&str; 4] = ["array", "end", "left", "user"];

/// Returns the statement in PostgreSQL's SQL.
pub(super) fn translated(sql: &str) -> String {
    let (mut text, mut rest, mut unnumbered) = (String::with_capacity(sql.len() + 16), sql, 0);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            '?' => 1 + digits(&rest[1..]),
            _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        match word {
            "?" => {
                unnumbered += 1;
                text.extend(["$", &unnumbered.to_string()]);
            }
            _ if first == '?' => text.extend(["$", &word[1..]]),
            _ if RESERVED.contains(&word) => text.extend(["\"", word, "\""]),
            _ => text.push_str(word),
        }
        rest = after;
    }
    text.replace("UPDATE OR REPLACE ", "UPDATE ")
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn digits(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn a_statement_is_put_into_postgresqls_words() {
        for (sqlite, postgresql) in [
            ("SELECT a FROM t WHERE id = ?1 AND b = ?12", "SELECT a FROM t WHERE id = $1 AND b = $12"),
            ("INSERT INTO t VALUES (?, ?, 'it?')", "INSERT INTO t VALUES ($1, $2, 'it?')"),
            (
                "UPDATE OR REPLACE t SET end = CASE WHEN left = 0 THEN ?1 ELSE end END",
                "UPDATE t SET \"end\" = CASE WHEN \"left\" = 0 THEN $1 ELSE \"end\" END",
            ),
            ("SELECT s.end, time_end FROM series s", "SELECT s.\"end\", time_end FROM series s"),
        ] {
            assert_eq!(translated(sqlite), postgresql);
        }
    }
}
