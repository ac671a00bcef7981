//! An application that uses sqlx on the file in which our store keeps its receipts.

#[cfg(test)]
mod tests {
    use idempotent_tool::{
        Caller, Failure, Scope, SqliteStore, Synchronous, Toolbox, Tx, idempotent_tool,
    };
    use serde_json::json;
    use sqlx::{Row, SqlitePool, sqlite::SqliteConnectOptions};

    /// Create a note.
    #[idempotent_tool(operation = "create_note:v1")]
    fn create_note(tx: &Tx, body: String) -> Result<i64, Failure> {
        tx.execute("INSERT INTO notes (body) VALUES (?1)", (&body,))?;
        Ok(tx.last_insert_rowid())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_write_one_file_in_one_binary() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("app.db");
        let store = SqliteStore::options().synchronous(Synchronous::Normal).open(&path)?;
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&path)).await?;
        sqlx::query("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT)")
            .execute(&pool)
            .await?;

        let tools =
            Toolbox::builder(store).without_authorization().tool::<create_note>().build()?;
        let caller = Caller::new(Scope::builder().account("acme").build()?);
        for index in 0..20 {
            let arguments = json!({ "idempotency_key": format!("k{index}"), "body": "ours" });
            let first = tools.call(&caller, "create_note", arguments.clone()).await;
            assert!(first.result().is_some(), "{}", first.to_json());
            sqlx::query("INSERT INTO notes (body) VALUES ('theirs')").execute(&pool).await?;
            assert!(tools.call(&caller, "create_note", arguments).await.is_replayed());
        }
        let counted = sqlx::query(
            "SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM idempotent_receipts)",
        )
        .fetch_one(&pool)
        .await?;
        assert_eq!((counted.get::<i64, _>(0), counted.get::<i64, _>(1)), (40, 20));
        Ok(())
    }
}
