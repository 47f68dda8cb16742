//! Long statements live in files of their own. A statement sent by a type with a `QueryId` is prepared once per connection,
//! which plain `sql_query` is not; this writes such a file piece by piece, as diesel wants its values.

use diesel::pg::Pg;
use diesel::query_builder::AstPass;

/// A statement whose placeholders `$1`, `$2` … stand in order, each once.
pub struct Statement {
    rest: &'static str,
}

impl Statement {
    pub fn new(sql: &'static str) -> Self {
        let mut rest = sql;
        while let Some((_, after)) = rest.split_once('\n').filter(|(line, _)| line.starts_with("--")) {
            rest = after;
        }
        Self { rest }
    }

    /// Writes up to the next placeholder, in whose place diesel puts a value.
    pub fn write_to_value(&mut self, out: &mut AstPass<'_, '_, Pg>) {
        let (before, after) = self.rest.split_once('$').unwrap_or((self.rest, ""));
        out.push_sql(before);
        self.rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }

    pub fn write_rest(self, out: &mut AstPass<'_, '_, Pg>) {
        out.push_sql(self.rest);
    }
}
