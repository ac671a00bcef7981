//! From registered tools to a toolbox: everything that can be wrong is found here, at once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    error::Error,
    fmt,
    marker::PhantomData,
    sync::Arc,
};

use schemars::Schema;
use serde_json::Value;
use tokio::runtime::Handle;

use super::{
    BuildError, Inner, Toolbox,
    registered::{Group, Kind, Version},
};
use crate::{
    effect::{
        external::{
            executor::Executor,
            incident::{Incident, IncidentObserver},
            instruction::Instruction,
            outbox::{Destination, Outbox},
            recovery::RecoveryDeclaration,
            tool::ExternalTool,
            worker,
        },
        failure::FailureObserver,
        transactional::TransactionalTool,
    },
    reply::{
        CANCEL_OPERATION, GET_OPERATION,
        describe::{self, Annotations, ToolDescription},
        schema,
        validate::{ReplyCheck, ResultValidator},
    },
    request::{
        arguments::{CompiledArguments, SchemaError},
        authorize::{Access, Asked, Authorizer},
        caller::Caller,
        carrier::KeyPlace,
        contract::{Contract, widen},
        registered::Registered,
    },
    store::{Backend, Store, StoreHandle},
    tool::{
        ArgumentDefault, Declaration, Effect, Need, RunsOn, State, Tool, ToolArguments, ToolOutput,
    },
};

/// Tools of the toolbox itself, listed once an external tool is registered.
const RESERVED: [&str; 2] = [GET_OPERATION, CANCEL_OPERATION];

/// Collects tools, their authorizer and their state.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ToolboxBuilder<S> {
    store: StoreHandle,
    authorizer: Option<Authorizer>,
    state: State,
    failures: FailureObserver,
    incidents: IncidentObserver,
    key_place: KeyPlace,
    registrations: Vec<Registration>,
    runtime: Option<Handle>,
    marker: PhantomData<fn(S)>,
}

/// A tool with its types erased, not yet checked.
struct Registration {
    declaration: Declaration,
    arguments: Schema,
    defaults: Vec<ArgumentDefault>,
    result: Schema,
    needs: Vec<Need>,
    effect: Effect,
}

/// A registration whose schemas are compiled.
struct Compiled {
    declaration: Declaration,
    arguments: CompiledArguments,
    result: ResultValidator,
    effect: Effect,
}

impl<S: Store> ToolboxBuilder<S> {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a builder owns what it is given"
    )]
    pub(super) fn new(store: S) -> Self {
        Self {
            store: store.handle(),
            authorizer: None,
            state: State::default(),
            failures: FailureObserver::default(),
            incidents: IncidentObserver::default(),
            key_place: KeyPlace::Argument,
            registrations: Vec::new(),
            runtime: None,
            marker: PhantomData,
        }
    }

    /// Names who may do what. Asked for every call, replays included, before anything is
    /// observed of the ledger; a tool's own `authorize = path` is asked instead, and each
    /// version of a tool has its own. A call whose key turns out to belong to another version
    /// is asked about once more, for that version, before anything is told of it.
    ///
    /// `authorize` sees the arguments as they came, not yet validated. It must not block
    /// for long: load what it needs into the [`Caller`] beforehand. If it panics, or answers
    /// after the tool's deadline (of an inspection, its `wait`), nothing is done: the call is
    /// `denied`, may be made again, and the log has an error.
    pub fn authorize(
        mut self,
        authorize: impl Fn(&Caller, &Asked<'_>) -> Access + Send + Sync + 'static,
    ) -> Self {
        self.authorizer = Some(Authorizer::new(authorize));
        self
    }

    /// Lets every caller call every tool that names no authorizer of its own. Scopes
    /// still keep one caller's keys apart from another's.
    pub fn without_authorization(self) -> Self {
        self.authorize(|_, _| Access::Allowed)
    }

    /// Leaves the key out of the listing: the host, which owns its retries, carries it
    /// beside the arguments, as [`CarriedKeys`](crate::CarriedKeys).
    ///
    /// A call whose request carries no key is refused, and an argument of that name is an
    /// unknown one.
    pub fn keys_beside_arguments(mut self) -> Self {
        self.key_place = KeyPlace::Beside;
        self
    }

    /// Adds a value that handlers have injected with `#[state] name: &T`; replaces one
    /// of the same type.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Is told of every error that a handler or a tool's reconciliation returns: the name of
    /// the tool, and the [`Failure`](crate::Failure) or [`AttemptError`](crate::AttemptError)
    /// with its cause as the `source`, which nobody else is shown.
    ///
    /// A cause may quote values of the caller's: send it where such values may be. `tell` runs
    /// in the call's own task, after a rollback, so it must not block.
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// use idempotent_tool::{SqliteStore, Toolbox};
    ///
    /// let tools = Toolbox::builder(SqliteStore::in_memory()?)
    ///     .without_authorization()
    ///     .on_failure(|tool, error| eprintln!("{tool}: {error}: {:?}", error.source()))
    ///     .build()?;
    /// # Ok::<(), Box<dyn Error>>(())
    /// ```
    pub fn on_failure(
        mut self,
        tell: impl Fn(&str, &(dyn Error + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.failures = FailureObserver::new(tell);
        self
    }

    /// Is told of what an operator has to know of external operations and nobody else is told:
    /// an enqueued one that failed, was never sent or whose outcome stays unknown, and a
    /// success that came after another end. An error line is logged of each as well.
    ///
    /// An incident that happens right before the process ends may be told of by neither.
    /// `tell` runs among the attempts, so it must not block.
    ///
    /// ```
    /// use idempotent_tool::{SqliteStore, Toolbox};
    ///
    /// let tools = Toolbox::builder(SqliteStore::in_memory()?)
    ///     .without_authorization()
    ///     .on_incident(|incident| eprintln!("{}: {:?}", incident.operation_id, incident.kind))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_incident(mut self, tell: impl Fn(&Incident) + Send + Sync + 'static) -> Self {
        self.incidents = IncidentObserver::new(tell);
        self
    }

    /// The tokio runtime, with its time driver, that runs attempts of external tools and their
    /// worker. The one in which [`build`](Self::build) is called is taken otherwise.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Registers a tool, by the type of the function's name. Several versions of one
    /// operation are registered one by one; the listing shows the highest.
    pub fn tool<T: Tool>(mut self) -> Self
    where
        T::Context: RunsOn<S>,
    {
        self.registrations.push(Registration {
            declaration: T::declaration(),
            arguments: T::Arguments::json_schema(),
            defaults: T::defaults(),
            result: T::Output::json_schema(),
            needs: T::needs(),
            effect: <T::Context as RunsOn<S>>::effect(T::handler()),
        });
        self
    }

    /// Checks everything, records the contracts in the ledger, and opens the toolbox.
    ///
    /// # Errors
    ///
    /// All that is wrong, together: a tool without an authorizer, without its state, with
    /// a schema that can't be advertised, registered twice; then a contract that differs
    /// from the one the ledger knows, or a ledger that can't be written.
    pub fn build(self) -> Result<Toolbox, BuildError> {
        build(
            self.store,
            self.authorizer.as_ref(),
            self.state,
            self.failures,
            self.incidents,
            self.key_place,
            self.registrations,
            self.runtime,
        )
    }
}

impl<S> fmt::Debug for ToolboxBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolboxBuilder")
            .field("tools", &self.registrations.len())
            .finish_non_exhaustive()
    }
}

#[allow(
    clippy::too_many_arguments,
    reason = "all that a builder has collected"
)]
fn build(
    StoreHandle(backend): StoreHandle,
    authorizer: Option<&Authorizer>,
    state: State,
    failures: FailureObserver,
    incidents: IncidentObserver,
    key_place: KeyPlace,
    registrations: Vec<Registration>,
    runtime: Option<Handle>,
) -> Result<Toolbox, BuildError> {
    let by_name = compile(registrations, authorizer, &state)?;

    let contracts: Vec<Contract> = by_name
        .values()
        .flat_map(BTreeMap::values)
        .map(|tool| {
            Contract::new(
                tool.declaration.name,
                tool.declaration.version,
                tool.arguments.schema(),
                tool.result.schema(),
                tool.declaration.external.is_some(),
            )
        })
        .collect();
    let mut registered = backend.register(contracts, check_contract)?.into_iter();

    let mut groups = BTreeMap::new();
    for (name, versions) in by_name {
        let versions = versions.into_values().zip(registered.by_ref()).collect();
        if let Some(group) = group(name, versions, authorizer, key_place)? {
            groups.insert(Arc::clone(&group.name), group);
        }
    }
    open(
        backend,
        groups,
        Arc::new(state),
        failures,
        incidents,
        key_place,
        runtime,
    )
}

/// The toolbox of these tools; with external ones among them, its worker is at work.
fn open(
    backend: Arc<dyn Backend>,
    groups: BTreeMap<Arc<str>, Group>,
    state: Arc<State>,
    failures: FailureObserver,
    incidents: IncidentObserver,
    key_place: KeyPlace,
    runtime: Option<Handle>,
) -> Result<Toolbox, BuildError> {
    let mut listing: BTreeMap<_, _> = groups
        .values()
        .map(|group| (group.description.name.clone(), group.description.clone()))
        .collect();
    #[allow(
        clippy::zero_sized_map_values,
        reason = "the check is empty but in tests"
    )]
    let mut own_checks = BTreeMap::new();
    let mut outbox = Outbox::default();
    let mut tools = Vec::new();
    for group in groups.values() {
        for version in group.versions() {
            outbox.add_authorizer(&group.name, version.number, version.authorizer.clone());
            let Kind::External(tool) = &version.kind else {
                continue;
            };
            tools.push(Arc::clone(tool));
            outbox.add(Destination {
                tool: Arc::clone(tool),
                arguments: Arc::clone(&version.arguments),
            });
        }
    }
    let mut executor = None;
    if let Some(first) = tools.first() {
        let results: Vec<_> = tools.iter().map(|tool| tool.result.schema()).collect();
        for description in [
            describe::get_operation(&results),
            describe::cancel_operation(&results),
        ] {
            let name = match description.name.as_str() {
                GET_OPERATION => GET_OPERATION,
                _ => CANCEL_OPERATION, // There are these two.
            };
            let check = ReplyCheck::compile(&description.output_schema).map_err(|error| {
                BuildError::Schema {
                    operation: name.into(),
                    message: error.to_string(),
                }
            })?;
            own_checks.insert(name, check);
            listing.insert(description.name.clone(), description);
        }
        let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) else {
            return Err(BuildError::NoRuntime {
                tool: first.name.to_string(),
            });
        };
        let started = Executor::new(
            Arc::clone(&backend),
            Arc::clone(&state),
            failures.clone(),
            incidents,
            tools,
            runtime,
        );
        worker::start(&started);
        executor = Some(started);
    }
    Ok(Toolbox {
        inner: Arc::new(Inner {
            backend,
            groups,
            state,
            failures,
            listing,
            own_checks,
            executor,
            outbox: Arc::new(outbox),
            key_place,
        }),
    })
}

fn compile(
    registrations: Vec<Registration>,
    authorizer: Option<&Authorizer>,
    state: &State,
) -> Result<BTreeMap<&'static str, BTreeMap<u32, Compiled>>, BuildError> {
    let mut problems = Vec::new();
    let mut by_name = BTreeMap::<_, BTreeMap<_, _>>::new();
    for registration in registrations {
        let declaration = registration.declaration;
        let operation = declaration.operation();
        if RESERVED.contains(&declaration.name) {
            problems.push(BuildError::ReservedName {
                tool: declaration.name.into(),
            });
        }
        for need in registration.needs.iter().filter(|need| !state.has(need)) {
            problems.push(BuildError::MissingState {
                operation: operation.clone(),
                type_name: need.type_name,
            });
        }
        let arguments = CompiledArguments::compile(registration.arguments, &registration.defaults);
        let result = ResultValidator::compile(registration.result.as_value());
        let (arguments, result) = match (arguments, result) {
            (Ok(arguments), Ok(result)) => (arguments, result),
            (arguments, result) => {
                for error in [arguments.err(), result.err()].into_iter().flatten() {
                    problems.push(BuildError::Schema {
                        operation: operation.clone(),
                        message: error.to_string(),
                    });
                }
                continue;
            }
        };
        match by_name
            .entry(declaration.name)
            .or_default()
            .entry(declaration.version)
        {
            Entry::Occupied(_) => problems.push(BuildError::DuplicateOperation { operation }),
            Entry::Vacant(entry) => {
                entry.insert(Compiled {
                    declaration,
                    arguments,
                    result,
                    effect: registration.effect,
                });
            }
        }
    }
    if authorizer.is_none() {
        // Of each version, since the recorded one's is asked as well as the one called.
        let versions = by_name.values().flat_map(BTreeMap::values);
        let declarations = versions.map(|tool| tool.declaration);
        problems.extend(declarations.filter_map(|declaration| {
            let missing = declaration.authorize.is_none();
            missing.then(|| missing_authorizer(&declaration))
        }));
    }
    BuildError::of(problems)?;
    Ok(by_name)
}

/// The contract that the ledger is to keep from now on, if it isn't the stored one.
fn check_contract(stored: &Value, current: &Contract) -> Result<Option<Value>, BuildError> {
    widen(stored, &current.json).map_err(|changes| BuildError::ContractChanged {
        operation: format!("{}:v{}", current.tool, current.version),
        changes,
    })
}

/// The versions of one operation, ascending, with their contracts.
fn group(
    name: &str,
    mut versions: Vec<(Compiled, Arc<Registered>)>,
    authorizer: Option<&Authorizer>,
    key_place: KeyPlace,
) -> Result<Option<Group>, BuildError> {
    let results: Vec<_> = versions
        .iter()
        .map(|(tool, _)| tool.result.schema())
        .collect();
    let output_schema = schema::output(&results);
    let Some((highest, contract)) = versions.pop() else {
        return Ok(None);
    };

    let declaration = highest.declaration;
    let unfit = |error: SchemaError| BuildError::Schema {
        operation: declaration.operation(),
        message: error.to_string(),
    };
    let name = Arc::<str>::from(name);
    Ok(Some(Group {
        reply: ReplyCheck::compile(&output_schema).map_err(unfit)?,
        description: ToolDescription {
            name: name.to_string(),
            title: declaration.title.map(Into::into),
            description: match declaration.external {
                None => describe::transactional(
                    declaration.description,
                    declaration.retention,
                    key_place,
                ),
                Some(_) => {
                    describe::external(declaration.description, declaration.retention, key_place)
                }
            },
            input_schema: schema::input(highest.arguments.schema(), key_place).map_err(unfit)?,
            output_schema,
            annotations: Annotations::keyed(declaration.destructive, declaration.open_world),
        },
        highest: version(&name, highest, contract, authorizer)?,
        older: versions
            .into_iter()
            .map(|(tool, contract)| version(&name, tool, contract, authorizer))
            .collect::<Result<_, _>>()?,
        name,
    }))
}

fn missing_authorizer(declaration: &Declaration) -> BuildError {
    BuildError::MissingAuthorizer {
        tool: declaration.name.into(),
        version: declaration.version,
    }
}

fn version(
    name: &Arc<str>,
    tool: Compiled,
    contract: Arc<Registered>,
    authorizer: Option<&Authorizer>,
) -> Result<Version, BuildError> {
    let declaration = tool.declaration;
    let own = declaration.authorize.map(Authorizer::new);
    let authorizer = own
        .or_else(|| authorizer.cloned())
        .ok_or_else(|| missing_authorizer(&declaration))?;
    let max_result = usize::try_from(declaration.max_result).unwrap_or(usize::MAX);
    let arguments = Arc::new(tool.arguments);
    let kind = match (tool.effect, declaration.external) {
        (Effect::Transactional(effect), None) => Kind::Transactional(Arc::new(TransactionalTool {
            version: declaration.version,
            contract,
            retention: declaration.retention,
            tombstone: declaration.tombstone,
            max_result,
            effects_outside: declaration.effects_outside,
            effect,
            result: tool.result,
        })),
        (Effect::External(handler), Some(declared)) => Kind::External(Arc::new(ExternalTool {
            instruction: instruction(declared.recovery, &arguments).map_err(|unknown| {
                BuildError::UnknownPlaceholder {
                    operation: declaration.operation(),
                    name: unknown.into(),
                }
            })?,
            name: Arc::clone(name),
            version: declaration.version,
            contract,
            retention: declaration.retention,
            tombstone: declaration.tombstone,
            deadline: declaration.deadline,
            max_result,
            handler,
            arguments: Arc::clone(&arguments),
            result: tool.result,
            declared,
        })),
        (Effect::Transactional(_), Some(_)) | (Effect::External(_), None) => {
            return Err(BuildError::EffectMismatch {
                operation: declaration.operation(),
            });
        }
    };
    Ok(Version {
        number: declaration.version,
        authorizer,
        arguments,
        deadline: declaration.deadline,
        kind,
    })
}

/// The text of `inspect`; the error is a name in it that has no value.
fn instruction(
    recovery: RecoveryDeclaration,
    arguments: &CompiledArguments,
) -> Result<Option<Instruction>, &'static str> {
    let text = recovery.instruction();
    text.map(|text| Instruction::new(text, arguments.schema()))
        .transpose()
}
