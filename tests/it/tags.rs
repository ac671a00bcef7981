//! What an authorizer keeps of an operation: who may act on the resource now may see what was
//! done to it, and nobody else.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use idempotent_tool::{
    Access, Asked, Attempt, AttemptError, Caller, Failure, Reply, Tags, Toolbox, Tx,
    idempotent_tool,
};
use rusqlite::Connection;
use serde_json::json;

use crate::{
    common::{Ledger, ada, assert_code, assert_succeeded, key, marked},
    pace::drive,
};

/// The projects that callers may act on now.
#[derive(Clone, Default)]
struct Projects(Arc<Mutex<BTreeSet<String>>>);

impl Projects {
    fn of(names: &[&str]) -> Self {
        let projects = Self::default();
        projects.allow(names);
        projects
    }

    fn allow(&self, names: &[&str]) {
        *self.0.lock().unwrap() = names.iter().map(|name| marked(name)).collect();
    }

    /// Decides by the project, which only the arguments name; later by what was kept of it.
    fn access(&self, _: &Caller, asked: &Asked<'_>) -> Access {
        let projects = self.0.lock().unwrap();
        match asked {
            Asked::Call { arguments, .. } => {
                let project = arguments.get("project").and_then(|value| value.as_str());
                match project.filter(|project| projects.contains(*project)) {
                    Some(project) => Access::tagged([project, &marked("audited")]),
                    None => Access::Denied,
                }
            }
            Asked::Inspect { tags, .. } | Asked::Cancel { tags, .. } => {
                let tags = tags.filter(|tags| tags.contains(&marked("audited")));
                let found = tags.and_then(Tags::first);
                Access::from(found.is_some_and(|project| projects.contains(project)))
            }
            _ => Access::Denied,
        }
    }
}

/// Deploy a project.
#[idempotent_tool(
    operation = "deploy:v1",
    inspect = "Look for the deployment in the provider's console"
)]
async fn deploy(_attempt: &Attempt, project: String) -> Result<usize, AttemptError> {
    Ok(project.len())
}

/// Have a project deployed.
#[idempotent_tool(operation = "order:v1")]
fn order(tx: &Tx, project: String) -> Result<String, Failure> {
    let id = tx.enqueue::<deploy>(&key("ordered"), &json!({ "project": project }))?;
    Ok(id.to_string())
}

fn tools(
    ledger: &Ledger,
    authorize: impl Fn(&Caller, &Asked<'_>) -> Access + Send + Sync + 'static,
) -> Toolbox {
    Toolbox::builder(ledger.store.clone())
        .authorize(authorize)
        .tool::<deploy>()
        .tool::<order>()
        .build()
        .unwrap()
}

async fn call(ledger: &Ledger, tools: &Toolbox, tool: &str, project: &str) -> Reply {
    let arguments = json!({ "idempotency_key": key(tool), "project": marked(project) });
    drive(&ledger.clock, tools.call(&ada(), tool, arguments)).await
}

async fn own_tools(tools: &Toolbox, id: &str) -> [Reply; 2] {
    let asked = json!({ "operation_id": id });
    let inspected = tools.call(&ada(), "get_operation", asked.clone()).await;
    [
        inspected,
        tools.call(&ada(), "cancel_operation", asked).await,
    ]
}

fn column(ledger: &Ledger) -> Vec<Option<String>> {
    let connection = Connection::open(ledger.path()).unwrap();
    let mut rows = connection
        .prepare("SELECT tags FROM idempotent_external ORDER BY seq")
        .unwrap();
    let tags = rows.query_map((), |row| row.get(0)).unwrap();
    tags.map(Result::unwrap).collect()
}

#[tokio::test]
async fn whoever_loses_a_project_loses_its_operations() {
    let ledger = Ledger::new();
    let projects = Projects::of(&["web", "shop"]);
    let ask = projects.clone();
    let tools = tools(&ledger, move |caller, asked| ask.access(caller, asked));
    let web = call(&ledger, &tools, "deploy", "web").await;
    assert_succeeded(&web, false);
    let id = web.operation_id().unwrap().to_string();
    for own in own_tools(&tools, &id).await {
        assert_succeeded(&own, true);
        assert!(!own.to_json().contains("audited"), "{}", own.to_json());
    }

    projects.allow(&["shop"]);
    assert_code(&call(&ledger, &tools, "deploy", "web").await, "denied");
    for own in own_tools(&tools, &id).await {
        assert_code(&own, "not_found");
    }
    projects.allow(&["web"]);
    for own in own_tools(&tools, &id).await {
        assert_succeeded(&own, true);
    }
    // No project is deployed of its name alone: another one's tags would not do.
    projects.allow(&["we", "webs"]);
    for own in own_tools(&tools, &id).await {
        assert_code(&own, "not_found");
    }
}

#[tokio::test]
async fn what_is_enqueued_keeps_the_tags_of_the_acceptance() {
    let ledger = Ledger::new();
    let projects = Projects::of(&["web"]);
    let ask = projects.clone();
    let tools = tools(&ledger, move |caller, asked| ask.access(caller, asked));
    let ordered = call(&ledger, &tools, "order", "web").await;
    assert_succeeded(&ordered, false);
    let id: String = serde_json::from_str(ordered.result().unwrap().get()).unwrap();
    projects.allow(&[]);
    for own in own_tools(&tools, &id).await {
        assert_code(&own, "not_found");
    }
    projects.allow(&["web"]);
    for own in own_tools(&tools, &id).await {
        assert_ne!(own.error_code(), Some("not_found"), "{}", own.to_json());
    }
    let listing: Vec<_> = tools.list().map(|tool| format!("{tool:?}")).collect();
    assert!(!listing.concat().contains("audited"));
    assert!(!format!("{tools:?}").contains("audited"));
}

#[tokio::test]
async fn a_retry_changes_no_tag_and_burial_takes_them() {
    let ledger = Ledger::new();
    let given = Arc::new(Mutex::new(vec![marked("first")]));
    let tags = Arc::clone(&given);
    let tools = tools(&ledger, move |_, asked| match asked {
        Asked::Call { .. } => Access::tagged(tags.lock().unwrap().clone()),
        _ => Access::Allowed,
    });
    assert_succeeded(&call(&ledger, &tools, "deploy", "web").await, false);
    *given.lock().unwrap() = vec![marked("second")];
    assert_succeeded(&call(&ledger, &tools, "deploy", "web").await, true);
    let kept = json!([marked("first")]).to_string();
    assert_eq!(column(&ledger), [Some(kept)]);

    ledger.clock.advance(Duration::from_hours(24 * 31));
    let pruned = ledger.store.prune(100).unwrap();
    assert_eq!(pruned.expired, 1, "{pruned:?}");
    assert_eq!(column(&ledger), []);
}

#[tokio::test]
async fn an_operation_from_before_has_no_tags_and_one_without_any_has_none_to_show() {
    let ledger = Ledger::new();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&shown);
    let tools = tools(&ledger, move |_, asked| {
        match asked {
            Asked::Inspect { tags, .. } | Asked::Cancel { tags, .. } => {
                let tags = tags.map(|tags| tags.iter().map(str::to_owned).collect::<Vec<_>>());
                seen.lock().unwrap().push(tags);
            }
            _ => (),
        }
        Access::Allowed
    });
    let reply = call(&ledger, &tools, "deploy", "web").await;
    let id = reply.operation_id().unwrap().to_string();
    let _ = own_tools(&tools, &id).await;
    // As a ledger of an earlier version is migrated, and as one that was tampered with is read.
    for stored in ["NULL", "'[1]'"] {
        let connection = Connection::open(ledger.path()).unwrap();
        let set = format!("UPDATE idempotent_external SET tags = {stored}");
        connection.execute(&set, ()).unwrap();
        let _ = own_tools(&tools, &id).await;
    }
    let (none, unknown) = (Some(Vec::new()), None);
    let shown = shown.lock().unwrap().clone();
    assert_eq!(shown[..2], [none.clone(), none]);
    assert_eq!(
        shown[2..],
        [unknown.clone(), unknown.clone(), unknown.clone(), unknown]
    );
}

#[tokio::test]
async fn too_many_tags_are_no_answer_and_nothing_is_cut() {
    let given = Arc::new(Mutex::new(Vec::new()));
    for (tags, fits) in [
        (vec!["x".repeat(32); 8], true),
        (vec![String::new(); 8], true),
        (vec!["x".repeat(256)], true),
        (vec!["x".to_owned(); 9], false),
        (vec!["x".repeat(257)], false),
        (
            vec!["\u{e9}".repeat(64), "\u{e9}".repeat(64), "x".to_owned()],
            false,
        ),
    ] {
        let ledger = Ledger::new();
        *given.lock().unwrap() = tags.clone();
        let give = Arc::clone(&given);
        let tools = tools(&ledger, move |_, _| {
            Access::tagged(give.lock().unwrap().clone())
        });
        let reply = call(&ledger, &tools, "deploy", "web").await;
        if fits {
            assert_succeeded(&reply, false);
            assert_eq!(column(&ledger), [Some(json!(tags).to_string())]);
        } else {
            assert_code(&reply, "denied");
            assert!(reply.is_retryable(), "{}", reply.to_json());
            assert_eq!(ledger.rows().1, 0);
            // A handler that enqueues is told the same.
            *given.lock().unwrap() = Vec::new();
            let ordered = call(&ledger, &tools, "order", "web").await;
            assert_succeeded(&ordered, false);
        }
    }
}

#[test]
fn tags_show_themselves_nowhere() {
    let tags = Tags::new([marked("web")]);
    let access = Access::Tagged(tags.clone());
    for shown in [
        format!("{tags:?}"),
        format!("{tags:#?}"),
        format!("{access:?}"),
    ] {
        assert!(!shown.contains("web"), "{shown}");
    }
}
