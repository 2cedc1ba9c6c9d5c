//! The statements over the table of the locks.
//!
//! Each row of an answer has the columns `number` and `rest`. A row with a number means yes. A row without a number means that
//! another token holds the lock, for the rest in microseconds, and the columns `holder` and `label` have the id of its holder and
//! the label of its owner. No row means no: the caller of an acquisition has lost a race, and `holder` asks for its winner. A column
//! `session` has the number of the session that has executed the statement.
//!
//! The column `token` of the table has the digest of a token, which begins with that id. An empty text means that the lock is
//! free.

use tokio_postgres::types::Type;

/// Returns the statement that creates the table in a schema.
pub(super) fn create_table(schema: &str) -> String {
    over_table(include_str!("table.sql"), schema)
}

/// Returns when the transaction of this statement has begun.
pub(super) const BEGAN: &str = "select (extract(epoch from now()) * 1000000)::bigint";

/// Reads the properties of a server that a node checks before its first use. The parameter is the schema.
pub(super) const FINDINGS: &str = include_str!("findings.sql");
/// Ends a process of the server.
pub(super) const END: &str = include_str!("end.sql");

/// Returns the name of the table in a schema.
pub(super) fn table(schema: &str) -> String {
    format!("{}.redlock_lease", quoted(schema))
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn over_table(sql: &str, schema: &str) -> String {
    sql.replace("{table}", &table(schema))
}

/// Defines the statements, each by the name of its file and the types of its parameters.
macro_rules! statements {
    ($($id:ident = $file:literal: $types:expr;)+) => {
        /// A statement over the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Statement { $($id),+ }

        impl Statement {
            /// All statements, each at its index.
            pub(super) const ALL: [Self; [$($file),+].len()] = [$(Self::$id),+];

            pub(super) const fn types(self) -> &'static [Type] {
                match self { $(Self::$id => &$types),+ }
            }

            pub(super) fn sql(self, schema: &str) -> String {
                over_table(match self { $(Self::$id => include_str!(concat!($file, ".sql"))),+ }, schema)
            }
        }
    };
}

statements! {
    Acquire = "acquire": [Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT, Type::INT8];
    Holder = "holder": [Type::TEXT, Type::TEXT];
    Extend = "extend": [Type::TEXT, Type::TEXT, Type::INT8];
    Confirm = "confirm": [Type::TEXT, Type::TEXT, Type::INT8];
    Shorten = "shorten": [Type::TEXT, Type::TEXT, Type::INT8];
    Release = "release": [Type::TEXT, Type::TEXT];
    Remove = "remove": [Type::TEXT, Type::TEXT];
    Notify = "notify": [Type::TEXT_ARRAY];
    CleanUp = "clean_up": [];
    Time = "time": [];
}
