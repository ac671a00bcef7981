//! A database error as a handler's failure.

use rusqlite::{Error, ErrorCode, ffi};

use crate::effect::failure::Failure;

/// With `?` in a handler. Neither SQL text nor a name of the schema reaches the caller; the
/// error itself is the failure's source.
///
/// ```
/// use idempotent_tool::Failure;
///
/// let failure = Failure::from(rusqlite::Error::QueryReturnedNoRows);
/// assert_eq!(failure.code(), "row_not_found");
/// ```
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, message) = describe(&error);
        let failure = Self::new(code, message).with_source(error);
        if code == "database_busy" || code == "database_unavailable" {
            failure.retryable()
        } else {
            failure
        }
    }
}

fn describe(error: &Error) -> (&'static str, &'static str) {
    if let Error::QueryReturnedNoRows = error {
        return ("row_not_found", "the database has no such row");
    }
    let Some(code) = error.sqlite_error_code() else {
        return ("database_error", "the tool and its database disagree");
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            ("database_busy", "the database is in use; try again")
        }
        ErrorCode::ConstraintViolation => ("constraint_violated", constraint(error)),
        ErrorCode::OperationInterrupted => (
            "interrupted",
            "the tool's budget ended while the database worked",
        ),
        ErrorCode::DiskFull
        | ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        | ErrorCode::OutOfMemory => (
            "database_unavailable",
            "the database can't store anything now; try again later",
        ),
        ErrorCode::AuthorizationForStatementDenied => (
            "not_allowed",
            "the tool used a statement that is refused inside a call",
        ),
        ErrorCode::TooBig => ("value_too_large", "a value is too large for the database"),
        _ => ("database_error", "the database refused what the tool asked"), // By its source.
    }
}

fn constraint(error: &Error) -> &'static str {
    match error.sqlite_error().map(|error| error.extended_code) {
        Some(ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
            "the database already has such a row"
        }
        Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
            "the write refers to a row that the database doesn't have"
        }
        Some(ffi::SQLITE_CONSTRAINT_NOTNULL) => "the write lacks a value that must be there",
        Some(ffi::SQLITE_CONSTRAINT_CHECK) => "the write breaks a rule of the database",
        _ => "the write breaks a constraint of the database", // Rarer kinds.
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn no_sql_and_no_name_is_told() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE secret_table (secret_column UNIQUE)")
            .unwrap();
        let insert = "INSERT INTO secret_table VALUES (1)";
        connection.execute(insert, []).unwrap();
        let errors = [
            connection.execute(insert, []).unwrap_err(),
            connection
                .execute("INSERT INTO secret_tabel VALUES (1)", [])
                .unwrap_err(),
            connection.execute("secret nonsense", []).unwrap_err(),
            connection
                .query_row("SELECT secret_column FROM secret_table", [], |row| {
                    row.get::<_, String>(0)
                })
                .unwrap_err(),
        ];
        for error in errors {
            let failure = Failure::from(error);
            assert!(!failure.to_string().contains("secret"), "{failure}");
            assert!(failure.source().is_some());
        }
    }

    #[test]
    fn a_lock_is_worth_another_try() {
        let busy = Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
        assert!(Failure::from(busy).is_retryable());
        assert!(!Failure::from(Error::QueryReturnedNoRows).is_retryable());
    }
}
