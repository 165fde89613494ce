"""Rename functions named by participles or bare nouns to verbs.

    PY=/work/main/.venv/bin; $PY/python /tmp/names4.py . [--dry] > /tmp/names4.log
    $PY/ruff check --fix -q .; $PY/ruff format -q .; $PY/python /tmp/names4.py . --wrap; $PY/ruff format -q .; $PY/ruff check .

Resolves by ast: scopes, imports, re-exports, class hierarchies. Refuses (prints) any rename whose new name clashes.
Idempotent. /tmp/names4.remaining gets every remaining occurrence of an old name (most are other things).
"""

import ast
import io
import keyword
import re
import subprocess
import sys
import tokenize
from pathlib import Path

# fmt: off
MAPPING = {
    "vcdl/api/child.py": {"_driven": "_drive"},
    "vcdl/api/compiled.py": {"_given_metrics": "_read_compile_metrics", "_named": "_describe_by_name"},
    "vcdl/api/handle.py": {"RunHandle._follow.looked_to_the_end": "show_new_events"},
    "vcdl/api/hub_task.py": {"preprocessed": "preprocess", "_masked": "_mask_labels"},
    "vcdl/api/lookups.py": {"looked_up": "apply_lookups", "_compiled_as": "_compile_like"},
    "vcdl/api/outputs.py": {"_listed": "_as_list"},
    "vcdl/api/showing.py": {"shown_run": "printing_observer"},
    "vcdl/api/spooled.py": {"spooled": "spool_stream"},
    "vcdl/boinc/daemons/checking_process.py": {"judged": "judge"},
    "vcdl/boinc/daemons/validate.py": {"refused": "refusal", "_refused": "_find_refusal"},
    "vcdl/boinc/daemons/work_generator.py": {
        "left_staged": "finished_runs_with_downloads",
        "WorkGenerators._quarantined": "_quarantined_hosts",
    },
    "vcdl/boinc/doctor/app.py": {
        "app": "check_app", "app_version": "check_app_version", "signing_key": "check_signing_key",
    },
    "vcdl/boinc/doctor/asking.py": {"_asked": "_request"},
    "vcdl/boinc/doctor/daemons.py": {
        "daemons": "check_daemons", "shared_memory": "check_shared_memory", "checker": "check_checker",
    },
    "vcdl/boinc/doctor/folders.py": {
        "page_rights": "check_page_rights", "folder_rights": "check_folder_rights",
        "downloads_readable": "check_downloads_readable", "upload_key": "check_upload_key",
        "stop_files": "check_stop_files",
    },
    "vcdl/boinc/doctor/installation.py": {"Installation.shown": "display_path"},
    "vcdl/boinc/doctor/installed_files.py": {
        "installed_files": "check_installed_files", "upload_certificates": "check_upload_certificates",
        "templates": "check_templates",
    },
    "vcdl/boinc/doctor/machine.py": {"user": "check_user", "host_name": "check_host_name", "disk_space": "check_disk_space"},
    "vcdl/boinc/doctor/mysql.py": {"database": "check_database", "columns": "check_columns", "clock": "check_clock"},
    "vcdl/boinc/doctor/runtime.py": {"python": "check_python", "weight_store": "check_weight_store"},
    "vcdl/boinc/doctor/secrets.py": {"secret_files": "check_secret_files"},
    "vcdl/boinc/doctor/uploads.py": {
        "upload_handler": "check_upload_handler", "upload_folders": "check_upload_folders",
        "certificates": "check_certificates", "upload": "check_upload",
        "_closed_to_the_web_server": "_find_unwritable",
    },
    "vcdl/boinc/doctor/web.py": {
        "master_page": "check_master_page", "attach_page": "check_attach_page", "scheduler": "check_scheduler",
        "downloads": "check_downloads",
    },
    "vcdl/boinc/grid/boinc_key.py": {"BoincKey.certified": "has_certified"},
    "vcdl/boinc/grid/client_rows.py": {
        "ClientRows.sent": ("sent_results", r"self\._clients"), "ClientRows.wanted_again": "withdraw_delete_requests",
    },
    "vcdl/boinc/grid/database.py": {"opened_project": "open_project"},
    "vcdl/boinc/grid/download_folder.py": {"_explained": "_advise_on_permissions"},
    "vcdl/boinc/grid/forget.py": {"kept_on_clients": "jobs_kept_on_clients"},
    "vcdl/boinc/grid/project_folder.py": {
        "BoincProject.shown": ("display_path", r"(self\.)?(_?project|installation)|.*\.project|.*BoincProject.*"),
        "BoincProject._fanned_out": "_fan_out_path", "advised": "add_advice", "_needed": "_require",
    },
    "vcdl/boinc/grid/results.py": {"BoincResults._claimed_of": "_claim"},
    "vcdl/boinc/grid/second_copies.py": {"SecondCopies._asked": "_assigned_workunits"},
    "vcdl/boinc/grid/weights_key.py": {"WeightsKey.signed": ("sign", r"(self\._?)?(weights_)?key|(OTHER_)?KEY|.*WeightsKey.*")},
    "vcdl/boinc/grid/workunit_rows.py": {
        "WorkunitRows.unfinished": "unfinished_names", "WorkunitRows._unfinished": "_unfinished_rows",
    },
    "vcdl/boinc/project/app_version.py": {"_unsigned": "_find_unsigned"},
    "vcdl/boinc/project/client_build.py": {"_imported_by": "_find_imports", "_executed": "_walk_executed"},
    "vcdl/boinc/project/container.py": {
        "Container.described": ("description_files", r"(.*\.)?container"), "kept_files": "collect_files",
    },
    "vcdl/boinc/project/edited_files.py": {
        "Fragment.shipped": ("load_shipped", r"Fragment"), "Fragment.added_to": "add_to",
        "Fragment.taken_out_of": "remove_from",
    },
    "vcdl/boinc/project/files.py": {"mapped": "map_os_errors"},
    "vcdl/boinc/project/merge.py": {"hastened": "shorten_sleep"},
    "vcdl/boinc/project/pages.py": {"untitled": "find_titled_page", "_shipped": "_read_shipped"},
    "vcdl/boinc/project/plan.py": {
        "_published_files": "_missing_client_files", "password_beside": "password_from_environment",
    },
    "vcdl/boinc/project/record.py": {"Record._kept": "_read_copy"},
    "vcdl/boinc/runtime/pruning.py": {"_keep": "_remove_all_except"},
    "vcdl/boinc/runtime/published.py": {
        "kept_folder": "runtime_folder", "kept_path": "runtime_path", "wanted": "runtimes_to_publish",
        "dropped": "unwanted_runtimes", "_kept": "_list_runtimes",
    },
    "vcdl/boinc/server/adopting.py": {"adopted": "read_settings"},
    "vcdl/boinc/server/project_steps.py": {"_opened": "_find_exposed_secrets"},
    "vcdl/boinc/server/removal.py": {"_kept": "_list_settings_files"},
    "vcdl/boinc/server/restoring.py": {
        "fetched_for_a_while": "fetch_temporarily", "kept_settings": "read_backup_settings",
    },
    "vcdl/boinc/server/settings.py": {
        "ServerSettings.changed": ("with_changes", r"SETTINGS|installed\(.*\)|load_installed\(.*\)|(self\.)?_?settings"),
        "installed": "load_installed",
    },
    "vcdl/boinc/server/upgrade.py": {"upgraded": "upgrade", "switched": "with_new_version", "shared": "link_packages"},
    "vcdl/checks/upload_reader.py": {"opened_upload": "open_upload"},
    "vcdl/client/boinc.py": {"_failed": "_report_failure", "_postponed": "_postpone"},
    "vcdl/client/compiled.py": {"_described": "_stat_file"},
    "vcdl/client/inputs.py": {"_checked_weights": "_check_weights"},
    "vcdl/client/loops.py": {
        "_traced_loop": "_trace_loop", "_compiled_step": "_compile_step", "_taken": "_select_batch",
    },
    "vcdl/client/metrics.py": {"known_to_keras": "keras_metrics"},
    "vcdl/client/model.py": {"checked_config": "parse_config", "_checked": "_parse"},
    "vcdl/client/muon.py": {"_summed": "_count_summed_axes"},
    "vcdl/client/newest.py": {"_fetched": "_fetch", "_opened": "_open"},
    "vcdl/client/own_code.py": {
        "taken_out": "split_code", "guarded": "run_guarded", "_Importer._shown": "_display_name",
    },
    "vcdl/client/parts.py": {"described": "model_to_json"},
    "vcdl/client/residual.py": {"_taken": "_claim_residuals"},
    "vcdl/client/runtime.py": {"_locked": "_try_lock"},
    "vcdl/client/time_share.py": {"TimeShare.trained": ("record_progress", r"(self\._?)?(time_)?share|self\._time")},
    "vcdl/client/train.py": {"_diverged": "_divergence_error"},
    "vcdl/codecs/encoded_file.py": {"framed": "frame_chunk", "ChunkReader._inflated": "_inflate"},
    "vcdl/codecs/encoding.py": {"_clipped": "_clip"},
    "vcdl/commands/_options.py": {"packed": "pack_options", "packed.decorated": "decorate", "opened": "open_fleet"},
    "vcdl/commands/_sweep_there.py": {"trained_there": "train_remotely"},
    "vcdl/commands/hosts.py": {"_rounded": "_round", "_lines.shown": "format_value"},
    "vcdl/commands/login.py": {"_asked": "_ask_token"},
    "vcdl/commands/plan.py": {"_measured": "_profile_for_plan", "_kept": "_time_settings"},
    "vcdl/commands/profile.py": {"_kept": "_load_profile"},
    "vcdl/commands/report.py": {"masked": "mask"},
    "vcdl/commands/submit.py": {"submitted": "submit_to_project"},
    "vcdl/commands/sweep.py": {
        "SearchKey._shown": "_format", "_ended": "_ended_trials", "_trained": "_train_trial", "_watched": "_watch_trial",
    },
    "vcdl/commands/verify.py": {"_named": "_format_versions"},
    "vcdl/data/cifar10.py": {"_checked_batch": "_read_batch"},
    "vcdl/data/class_weights.py": {"_balanced": "_balance", "_named": "_weights_from_names"},
    "vcdl/data/dataset.py": {
        "checked_part": "make_part", "labelled": "number_labels", "named_labels": "name_labels",
    },
    "vcdl/data/download.py": {"downloaded": "download_dataset"},
    "vcdl/data/fashion_mnist.py": {"_verified": "_verify"},
    "vcdl/data/kept_survey.py": {"kept": "load_survey"},
    "vcdl/data/labels.py": {"_masked": "_number_unmasked", "_decoded": "_decode"},
    "vcdl/data/load.py": {"_named": "_find_source", "_taken": "_select"},
    "vcdl/data/npz_file.py": {
        "_opened": "_open", "_labelled": "_number_labels", "_checked": "_read_part", "_damaged": "_damaged_error",
    },
    "vcdl/data/numbers.py": {"gathered": "gather_numbers"},
    "vcdl/data/outputs.py": {
        "checked_outputs": "make_part_with_outputs", "labelled_outputs": "number_output_labels",
        "_labelled": "_number_labels",
    },
    "vcdl/data/readers/images.py": {
        "ImagesReader._embedded": "_read_embedded", "ImagesReader._tried": "_try_prepare", "_opened": "_open",
    },
    "vcdl/data/readers/table.py": {
        "_Columns.kept": ("complete_rows", r"schema"), "_shown": "_display_name", "_listed": "_join_names",
    },
    "vcdl/data/readers/table_file.py": {
        "_checked": "_check_batch", "opened_table": "open_table", "_opened_arrow": "_open_arrow",
        "_opened_csv": "_open_csv",
    },
    "vcdl/data/readers/text.py": {"TextReader._labelled_lines": "_read_labelled_lines", "TextReader._padded": "_pad"},
    "vcdl/data/rows.py": {"Rows.taken": ("take", r"x|rows\(.*\)|(part\.)?x")},
    "vcdl/data/samples.py": {
        "Samples.taken": ("take", r"whole|held_out|samples|mapped|read_samples\(.*\)"),
        "Samples.loaded": ("load", r"samples|mapped|held_out.*|read_samples\(.*\)|self\.tak.*"),
    },
    "vcdl/data/shards.py": {"_linked": "_link_shards", "_scattered": "_scatter_data"},
    "vcdl/data/split.py": {"held_out": "hold_out", "grouped": "split_groups"},
    "vcdl/data/streamed.py": {"_labelled": "_number_labels"},
    "vcdl/data/suggestion.py": {"Suggestion.loaded": ("load", r"suggestion|suggestion_for\(.*\)")},
    "vcdl/errors/backoff.py": {
        "Attempts.failed": ("record_failure", r".*attempts|self\._(starts|looks_for_room|tries)"),
        "Attempts.succeeded": "record_success",
    },
    "vcdl/files/fetched.py": {"pinned": "pin_address", "_Fetch._fetched": "_download"},
    "vcdl/files/lock.py": {"FileLock._acquired": "_acquire"},
    "vcdl/files/plugins.py": {"_taken": "_name_conflict"},
    "vcdl/files/remote.py": {"Remote.opened": ("open", r"(self\._)?remote"), "Web.opened": "open", "Bucket.opened": ("open", r"tests/files/test_google_storage.py::remote"), "shown": "display_url"},
    "vcdl/files/shipped.py": {"shipped": "shipped_folder"},
    "vcdl/fleet/aws/catalogue.py": {"Catalogue._allowed": "_allowed_types", "Catalogue._described": "_describe_types"},
    "vcdl/fleet/aws/instances.py": {"AwsPlace._described": "_describe_instances"},
    "vcdl/fleet/aws/leftovers.py": {"_refused": "_remove"},
    "vcdl/fleet/controller.py": {"Controller._wanted": "_wanted_units"},
    "vcdl/fleet/cost.py": {"_applied": "_count_applied", "_wasted": "_wasted_cost"},
    "vcdl/fleet/folder.py": {"FleetFolder._mapped": "_map_errors"},
    "vcdl/fleet/gcp/catalogue.py": {"MachineCatalogue._allowed": "_allowed_types", "MachineCatalogue._asked": "_get_or_none"},
    "vcdl/fleet/gcp/connection.py": {
        "Connection.listed": ("list_all", r"(self\.)?_?connection"), "Connection.listed_by_zone": "list_by_zone",
        "_mapped": "_map_errors",
    },
    "vcdl/fleet/gcp/instances.py": {"GcpInstances._ended": "_with_ending"},
    "vcdl/fleet/gcp/launch.py": {"_blamed": "_blamed_pools"},
    "vcdl/fleet/gcp/provider.py": {"_named": "_parse_id"},
    "vcdl/fleet/ledger.py": {"Ledger._mapped_errors": "_map_errors"},
    "vcdl/fleet/machine/cloud_init.py": {
        "compressed": "compress", "_written": "_file_entry", "shipped": "read_shipped",
    },
    "vcdl/fleet/machine/vcdl_agent/watches.py": {"Log.solved": "clear_problem"},
    "vcdl/fleet/money.py": {"Money.priced": "check_prices", "Money.sized": "limit_to_budget"},
    "vcdl/fleet/prices.py": {"PriceTable.shipped": ("load_shipped", r"PriceTable")},
    "vcdl/fleet/provider.py": {"asked": "ask_all"},
    "vcdl/fleet/reconciler.py": {"_usable": "_launchable_pools"},
    "vcdl/fleet/run.py": {"drained": "drain", "scaled": "scale_to"},
    "vcdl/fleet/settings.py": {"_known_cloud": "_parse_cloud", "_checked_key": "_check_key"},
    "vcdl/job/cut.py": {"suited": "fit_to_slots", "_left": "_samples_to_train_on"},
    "vcdl/job/data.py": {"_known": "_parse_source"},
    "vcdl/job/named.py": {"named": "parse_named"},
    "vcdl/job/schema.py": {"Job.resolved": "to_plain_values"},
    "vcdl/job/stop.py": {"StopSettings.judged_by": "monitor_for", "_measured": "_measure_names"},
    "vcdl/job/users_function.py": {"failed": "user_code_error"},
    "vcdl/journal/clock.py": {
        "kept_clock": "load_or_create_clock", "rebooted_to": "detect_reboot", "_found": "_find_clock",
    },
    "vcdl/journal/journal.py": {
        "Journal.rebooted_to": "detect_reboot", "Journal.keyed": "events_with_key_prefix",
        "Journal.kept_state": "load_state", "_recorded": "_decode_row", "_mapped_errors": "_map_errors",
    },
    "vcdl/journal/lineage.py": {"Lineage.refolded": "refolded_updates"},
    "vcdl/journal/packing.py": {"_unpacked": "_unpack"},
    "vcdl/journal/reader_state.py": {"kept_beside": "load_reader_state"},
    "vcdl/journal/reading.py": {"_opened": "_connect"},
    "vcdl/journal/rows.py": {"_damaged": "_damaged_error"},
    "vcdl/local/grid.py": {"LocalGrid._uploaded": "_handle_upload", "LocalGrid._found_no_room": "_handle_full_disk"},
    "vcdl/local/warm_workers.py": {"_WarmWorker.forked": "fork"},
    "vcdl/loop/assimilator.py": {
        "Assimilator._looked_at": "_inspect", "Assimilator._believed": "_check_claims",
        "Assimilator._superseded": "_supersede", "_applied": "_applied_event",
    },
    "vcdl/loop/checked_files.py": {"_kept_uploads": "_verify_kept_uploads"},
    "vcdl/loop/coordinator.py": {"Coordinator.held_back": "slots_to_leave_free"},
    "vcdl/loop/plan.py": {"Plan.held_back": "slots_to_leave_free"},
    "vcdl/loop/job_state.py": {
        "Tries.created": ("record_created", r"(self\.)?tries"), "Tries.applied": ("record_applied", r"(self\.)?tries"),
        "JobState.taken_for": "taken_marks", "JobState._applied": "_record_applied",
        "JobState._rolled_back": "_record_rollback",
    },
    "vcdl/loop/loop.py": {"Loop._observed": "_notify_observer"},
    "vcdl/loop/preparation.py": {
        "prepare.held_out": "read_held_out", "_fitted": "_fit_data_and_model", "_told": "_progress_callback",
    },
    "vcdl/loop/recovery.py": {"_made_again": "_rebuild_weights"},
    "vcdl/loop/rollback.py": {
        "_dropped": "_choose_dropped", "_kept_newest": "_keep_newest", "without_trust": "suspect_updates",
    },
    "vcdl/loop/streamed_upload.py": {
        "FoldSettings.counted": ("counted_fraction", r"(self\._)?settings"), "opened_fold": "open_fold",
    },
    "vcdl/loop/work_generator.py": {"WorkGenerator._wanted": "_wanted_workunits"},
    "vcdl/models/build.py": {
        "_completed": "_complete_json", "_loaded_code": "_load_code", "_called": "_call_user_function",
        "_limited": "_limit_training", "_given_json": "_make_json",
    },
    "vcdl/models/check.py": {"_made": "_build_optimizer_and_losses"},
    "vcdl/models/check_metrics.py": {"_tried": "_try_metric"},
    "vcdl/models/fitted.py": {"fitted": "build_fitted", "_compared": "_comparison_values"},
    "vcdl/models/footprint.py": {"_known": "_fill_unknown"},
    "vcdl/models/given_weights.py": {"_opened_keras": "_open_keras", "_saved_variables": "_count_variables"},
    "vcdl/models/hub.py": {"_traced": "_trace_model", "_derived": "_derive_input"},
    "vcdl/models/hub_inline.py": {"inlined": "inline_model", "_refused": "_inline_error", "_Trace._copied": "_copy_layer"},
    "vcdl/models/hub_ops.py": {"Batch.repeated": "repeat", "replaced": "replace_function", "_filled": "_fill"},
    "vcdl/models/integer_inputs.py": {
        "_reached": "_find_embeddings", "_reached_in_graph": "_find_embeddings_in_graph",
    },
    "vcdl/models/lora.py": {"merged": "merge"},
    "vcdl/models/measuring.py": {"compared_with": "labels_to_compare"},
    "vcdl/models/meter.py": {
        "_traced_set": "_trace_set", "_traced_reset": "_trace_reset", "_traced_step": "_trace_step",
    },
    "vcdl/models/rate_trial.py": {
        "found_boost": "find_boost", "found_boost.prepared": "prepare", "_mixed": "_shuffle_within_batches",
    },
    "vcdl/models/trained.py": {"named_layers": "find_layers"},
    "vcdl/models/trial.py": {"diverged": "divergence_error"},
    "vcdl/pool/grid.py": {"PoolGrid._take_from_another": "_reclaim_unstarted"},
    "vcdl/pool/mailboxes.py": {
        "Mailbox.taken": ("taken_task", r"(self\._)?mailbox|.*[Mm]ailbox.*"),
        "Mailbox.dropped": ("dropped_workunit", r"(self\._)?mailbox|.*[Mm]ailbox.*"), "_moved": "_try_move",
    },
    "vcdl/pool/pilot.py": {"PilotMailbox.dropped": "dropped_workunit"},
    "vcdl/remote/pilot_pool.py": {"RemoteMailbox.dropped": "dropped_workunit", "RemotePool._opened": "_open"},
    "vcdl/profile/differential.py": {"_Bench._evicted": "_evict_shards"},
    "vcdl/profile/measure.py": {"measured_run": "profile_run", "measured_here": "profile_here"},
    "vcdl/profile/show.py": {"_named": "_host_names"},
    "vcdl/remote/connections.py": {"checked_url": "check_url"},
    "vcdl/remote/parcel.py": {"_built": "_build_model"},
    "vcdl/remote/service_client.py": {
        "ServiceClient.sent": ("send", r"(self\.)?_?(client|service)"),
        "ServiceClient.opened": ("open_part", r"(self\.)?_?(client|service)"),
        "ServiceClient._opened": "_open",
    },
    "vcdl/report/display.py": {"announced": "announce"},
    "vcdl/report/movie.py": {"_Recording._elapsed": "_elapsed_text", "_Recording._measured": "_finite_measures"},
    "vcdl/report/note.py": {"RunNote.changed": ("with_changes", r"RunNote\(\)|note")},
    "vcdl/report/own_settings.py": {"_shown": "_format_value"},
    "vcdl/report/side_by_side.py": {
        "_shown_totals": "_totals_rows", "_known": "_finite_or_none", "_shown": "_format_value",
    },
    "vcdl/report/summary.py": {"_known": "_finite_or_none"},
    "vcdl/report/wording.py": {"grouped": "group_digits", "aligned": "align_columns"},
    "vcdl/rules/ramp.py": {"between": "interpolate"},
    "vcdl/run/checking.py": {"_shown_passwords": "_password_warnings"},
    "vcdl/run/driver.py": {
        "given_up": "failed_shard_error", "discarded_if_refused": "discard_if_refused", "begun": "create_run",
    },
    "vcdl/run/failure.py": {"_damaged_byte_code": "_find_damaged_byte_code"},
    "vcdl/run/finding.py": {
        "chosen_run": "find_run", "unfinished": "unfinished_error", "shown": "display_path", "quoted": "quote_path",
    },
    "vcdl/run/prepared.py": {"_damaged": "_damaged_error"},
    "vcdl/run/results.py": {"exported_score": "compare_export", "trained_model": "load_trained_model"},
    "vcdl/run/run.py": {"expected_of": "read_expected"},
    "vcdl/run/staging.py": {"staged": "stage"},
    "vcdl/run/standing.py": {"Standing.compared": "as_column", "_trained": "_model_and_data"},
    "vcdl/run/store_claim.py": {
        "asked_settings": "requested_settings", "held_to": "settings_at", "claimed_key": "claim_key",
    },
    "vcdl/simulate/clients.py": {"_normalised": "_normalise"},
    "vcdl/simulate/host_forecast.py": {"HostForecast.kept": ("fraction_within", r"(vcdl|tests)/simulate/.*::(best|middle|one|forecast)")},
    "vcdl/simulate/presence.py": {"_joined": "_merge_absences"},
    "vcdl/simulate/simulation.py": {"_begun": "_create_run"},
    "vcdl/simulate/virtual_grid.py": {
        "VirtualGrid._uploaded": "_make_upload", "VirtualGrid._ended": "_end_workunit", "VirtualGrid._take": "_start",
    },
    "vcdl/simulate/virtual_run.py": {"VirtualRun._trained": "_encodings_and_residuals"},
    "vcdl/stores/chunks.py": {"sealed": "seal", "opened": "unseal"},
    "vcdl/stores/commit_log.py": {"CommitLog._damaged": "_damaged_error"},
    "vcdl/stores/file.py": {"FileStore._checked": "_open_checked", "_SlotCopy._begun": "_begin_sums"},
    "vcdl/stores/mysql_connection.py": {
        "MysqlConnection._connected": "_connect", "MysqlConnection._translated": "_translate_errors",
    },
    "vcdl/stores/redis.py": {"RedisStore._translated": "_translate_errors"},
    "vcdl/stores/server_store.py": {
        "ServerStore._undisturbed": "_retry_disturbed", "ServerStore._copied": "_copy_vector",
        "ServerStore._known": "_check_head",
    },
    "vcdl/testing/clouds.py": {"_launched": "_launch"},
    "vcdl/testing/folds.py": {"_folded": "_fold_in_place"},
    "vcdl/testing/trust.py": {"_admitted": "_admit"},
    "vcdl/trust/bounds.py": {"Bounds._scaled_by": "_block_scale", "Bounds._compare": "_add_dot_products"},
    "vcdl/trust/collapse.py": {"CollapseWatch._found": "_find_collapse", "CollapseWatch._measured": "_add_measure"},
    "vcdl/trust/hosts.py": {"HostHistory._known": "_get_record"},
    "vcdl/trust/own_step.py": {"_trained": "_train_subtask", "_trained.trained": "train"},
    "vcdl/trust/strangers.py": {"Strangers._refused": "_find_refusal"},
    "vcdl/trust/trials.py": {"Trials._tried": "_train_slice"},
    "vcdl/trust/verification.py": {
        "Verification._measured": "_apply_measure", "Verification._drawn": "_draw_check",
        "Verification._verified": "_verify", "Verification._trained": "_retrain",
    },
    "vcdl/web/accounts.py": {
        "Accounts.submitted": ("record_submission", r"(self\._)?accounts|Accounts\(.*\)"), "Accounts._opened": "_connect",
    },
    "vcdl/web/app.py": {"mounted": "mount"},
    "vcdl/web/catalogue.py": {"JobCatalogue.listed": ("list_jobs", r"(self\.)?_?catalogue")},
    "vcdl/web/guard.py": {"_limited": "_limit_body", "_limited.limited": "receive_limited"},
    "vcdl/web/job_page.py": {"_compared_row": "_comparison_cells"},
    "vcdl/web/pictures.py": {"_framed": "_add_axes", "_thinned": "_merge_points", "_scaled": "_scale"},
    "vcdl/web/request_rate.py": {"RequestRate._left_of": "_remaining_for"},
    "vcdl/web/routes.py": {"_logged_in": "_finish_login", "_checked_form": "_read_form", "_shown": "_render_page"},
    "vcdl/web/served_commands.py": {
        "served_command": "check_command", "CommandRunner.written": ("written_file", r".*commands|.*runner"),
    },
    "vcdl/web/service.py": {"WebService._noted": "_record_action", "WebService._go_on": "_resume"},
    "vcdl/web/submissions.py": {
        "Submissions.looked_at": "inspect_job", "started": "start_process", "_checked_values": "_parse_job_file",
    },
    "vcdl/wire/fields.py": {"_decoded": "_decode"},
    "vcdl/wire/hdf5_form.py": {
        "Hdf5Dataset.described": ("describe", r"dataset"), "_checked": "_append_checksum", "_rotated": "_rotate_left",
    },
    "vcdl/wire/inputs.py": {"packed": "pack_inputs", "shown_shape": "format_shape"},
    "vcdl/wire/newest.py": {"signed": "append_signature"},
    "vcdl/wire/npz_form.py": {"NpzFile.mapped": ("map_array", r"file"), "opened_npz": "open_npz"},
    "vcdl/wire/weights.py": {
        "_joined": "_join_neighbours", "_flattened": "_flatten", "opened_weights": "open_weights",
        "opened_dataset": "open_dataset",
    },
    "vcdl/yaml_schema/section.py": {"one_of_sections.refused": "refuse"},
    "vcdl/yaml_schema/values.py": {"_shown": "_display_path"},
}
# fmt: on

EXTRA = [
    ("tests/test_advice.py", '{"quote", "quoted", "for_shell"}', '{"quote", "quote_path", "for_shell"}'),
    (
        "vcdl/run/results.py",
        "and a picture if classes are few, by `load_trained_model`'s model",
        "and a picture for few classes, by `load_trained_model`'s model",
    ),
    # (file, old text, new text): what names alone cannot do.
    (
        "vcdl/boinc/doctor/__init__.py",
        'name = check.__name__.replace("_", " ")',
        'name = check.__name__.removeprefix("check_").replace("_", " ")',
    ),
    (
        "vcdl/commands/hosts.py",
        'format_value(row["turnaround_s"], "s"), format_value(row["samples_per_s"], ".1f"), format_value(row["staleness"], ".1f"),',
        'format_value(row["turnaround_s"], "s"), format_value(row["samples_per_s"], ".1f"),\n'
        '                format_value(row["staleness"], ".1f"),',
    ),
]

SKIP_TEXT: set[tuple[str, str]] = {("vcdl/boinc/grid/grid.py", "sent")}
"""(file, old name): in these files the name in backticks is something else."""


class Scope:
    def __init__(self, node, parent, kind):
        self.node, self.parent, self.kind = node, parent, kind
        self.bound, self.globals, self.nonlocals = set(), set(), set()
        self.imports = {}  # name -> list of ("module", dotted) | ("from", module, name)
        self.annotations = {}

    def resolve(self, name):
        """Return the scope that binds a name used here, or None."""
        scope = self
        first = True
        while scope is not None:
            if name in scope.globals:
                while scope.parent is not None:
                    scope = scope.parent
                return scope if name in scope.bound else None
            if name in scope.bound and name not in scope.nonlocals and (first or scope.kind != "class"):
                return scope
            first = False
            scope = scope.parent
        return None


class File:
    """A parsed file: its scopes, and the scope of each Name, Attribute, alias, definition."""

    def __init__(self, path, source):
        self.path, self.source = path, source
        self.tree = ast.parse(source)
        parts = path[:-3].split("/")
        self.is_package = parts[-1] == "__init__"
        self.module = ".".join(parts[:-1] if self.is_package else parts)
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.scope_of, self.parents, self.classes, self.functions = {}, {}, {}, {}
        self.top = Scope(self.tree, None, "module")
        self.scopes = [self.top]
        for child in self.tree.body:
            self._visit(child, self.top, [])
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        self.tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        self.by_start = {token.start: index for index, token in enumerate(self.tokens)}

    def offset(self, line, column_bytes):
        text = self.lines[line - 1]
        return self.starts[line - 1] + len(text.encode()[:column_bytes].decode())

    def token_offset(self, position):
        return self.starts[position[0] - 1] + position[1]

    def resolve_from(self, module, level):
        if not level:
            return module or ""
        base = self.module.split(".")
        base = base[: len(base) - level + (1 if self.is_package else 0)]
        return ".".join([*base, *([module] if module else [])])

    def _new(self, node, parent, kind):
        scope = Scope(node, parent, kind)
        self.scopes.append(scope)
        return scope

    def _visit(self, node, scope, path):
        self.scope_of[node] = scope
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            name = getattr(node, "name", None)
            if name:
                scope.bound.add(name)
                self.functions.setdefault(".".join([*path, name]), []).append((node, scope))
                for part in node.decorator_list:
                    self._visit(part, scope, path)
                if node.returns:
                    self._visit(node.returns, scope, path)
            inner = self._new(node, scope, "function")
            arguments = node.args
            for one in [
                *arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
                *([arguments.vararg] if arguments.vararg else []), *([arguments.kwarg] if arguments.kwarg else []),
            ]:
                inner.bound.add(one.arg)
                if one.annotation:
                    inner.annotations[one.arg] = ast.unparse(one.annotation)
                    self._visit(one.annotation, scope, path)
            for default in [*arguments.defaults, *[one for one in arguments.kw_defaults if one]]:
                self._visit(default, scope, path)
            for child in node.body if isinstance(node.body, list) else [node.body]:
                self._visit(child, inner, [*path, name or "<lambda>"])
            return
        if isinstance(node, ast.ClassDef):
            scope.bound.add(node.name)
            for part in [*node.decorator_list, *node.bases, *[keyword.value for keyword in node.keywords]]:
                self._visit(part, scope, path)
            inner = self._new(node, scope, "class")
            self.classes[".".join([*path, node.name])] = (node, inner, scope)
            for child in node.body:
                self._visit(child, inner, [*path, node.name])
            return
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            inner = self._new(node, scope, "comprehension")
            for number, generator in enumerate(node.generators):
                self._visit(generator.iter, scope if number == 0 else inner, path)
                self._visit(generator.target, inner, path)
                for condition in generator.ifs:
                    self._visit(condition, inner, path)
            for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
                self._visit(part, inner, path)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                self.scope_of[alias] = scope
                if isinstance(node, ast.Import):
                    bound = alias.asname or alias.name.split(".")[0]
                    target = ("module", alias.name if alias.asname else alias.name.split(".")[0])
                else:
                    bound = alias.asname or alias.name
                    target = ("from", self.resolve_from(node.module, node.level), alias.name)
                scope.bound.add(bound)
                scope.imports.setdefault(bound, []).append(target)
            return
        if isinstance(node, ast.Global):
            scope.globals.update(node.names)
        if isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            target = scope
            parent_walrus = getattr(node, "_walrus", False)
            while parent_walrus and target.kind == "comprehension":
                target = target.parent
            target.bound.add(node.id)
        if isinstance(node, ast.NamedExpr):
            node.target._walrus = True
        if isinstance(node, ast.ExceptHandler) and node.name:
            scope.bound.add(node.name)
        if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bound.add(node.name)
        if isinstance(node, ast.MatchMapping) and node.rest:
            scope.bound.add(node.rest)
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope, path)


class Renamer:
    def __init__(self, root):
        self.root = Path(root)
        names = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        self.names = [name for name in names if (self.root / name).is_file()]
        self.files = {}
        for name in self.names:
            if name.endswith(".py"):
                self.files[name] = File(name, (self.root / name).read_text(encoding="utf-8"))
        self.by_module = {file.module: file for file in self.files.values()}
        self.notes, self.refused = [], {}
        self.class_bases()

    # --- modules and classes ---------------------------------------------------------------------------------------

    def find_binding(self, file, scope, name, seen=()):
        """Return what a name means: ("file", File) of a module, ("class", key), ("def", path, name), or None."""
        where = scope.resolve(name)
        if where is None:
            return None
        for kind, *rest in where.imports.get(name, []):
            if kind == "module":
                return ("module", rest[0])
            return self.find_export(rest[0], rest[1], seen)
        if where is file.top:
            if name in file.classes:
                return ("class", (file.path, name))
            if name in file.functions:
                return ("def", file.path, name)
        return None

    def find_export(self, module, name, seen=()):
        if f"{module}.{name}" in self.by_module and (
            module not in self.by_module or name not in self.by_module[module].top.bound
        ):
            return ("module", f"{module}.{name}")
        file = self.by_module.get(module)
        if file is None or (module, name) in seen:
            return None
        found = self.find_binding(file, file.top, name, (*seen, (module, name)))
        if found is None and f"{module}.{name}" in self.by_module:
            return ("module", f"{module}.{name}")
        return found

    def module_of(self, file, scope, node):
        """Return the dotted module that an expression means, or None."""
        if isinstance(node, ast.Name):
            found = self.find_binding(file, scope, node.id)
            return found[1] if found and found[0] == "module" else None
        if isinstance(node, ast.Attribute):
            base = self.module_of(file, scope, node.value)
            if base is None:
                return None
            if f"{base}.{node.attr}" in self.by_module:
                return f"{base}.{node.attr}"
        return None

    def class_bases(self):
        self.bases, self.subs = {}, {}
        for file in self.files.values():
            for name, (node, _inner, scope) in file.classes.items():
                key = (file.path, name)
                self.bases[key] = []
                for base in node.bases:
                    base = base.value if isinstance(base, ast.Subscript) else base
                    found = self.class_of(file, scope, base)
                    if found:
                        self.bases[key].append(found)
                        self.subs.setdefault(found, []).append(key)

    def class_of(self, file, scope, node):
        if isinstance(node, ast.Name):
            where = scope.resolve(node.id)
            if where is not None and where is not file.top and not where.imports.get(node.id):
                for name, (_node, _inner, at) in file.classes.items():
                    if at is where and name.split(".")[-1] == node.id:
                        return (file.path, name)
            found = self.find_binding(file, scope, node.id)
            return found[1] if found and found[0] == "class" else None
        if isinstance(node, ast.Attribute):
            module = self.module_of(file, scope, node.value)
            found = self.find_export(module, node.attr) if module else None
            return found[1] if found and found[0] == "class" else None
        return None

    def members(self, key):
        """Return the names that a class body or its methods' self bind."""
        file = self.files[key[0]]
        node, inner, _ = file.classes[key[1]]
        found = set(inner.bound)
        for child in ast.walk(node):
            if (
                isinstance(child, ast.Attribute)
                and isinstance(child.ctx, ast.Store)
                and isinstance(child.value, ast.Name)
                and child.value.id in ("self", "cls")
            ):
                found.add(child.attr)
        return found

    def relatives(self, key, name):
        """Return the classes of a hierarchy that share a method."""
        found, todo = set(), [key]
        while todo:
            one = todo.pop()
            if one in found:
                continue
            found.add(one)
            todo += self.subs.get(one, [])
            above, line = list(self.bases.get(one, [])), []
            while above:
                base = above.pop()
                line.append(base)
                above += self.bases.get(base, [])
            todo += [base for base in line if name in self.members(base)]
        return found

    # --- entities --------------------------------------------------------------------------------------------------

    def plan(self):
        self.global_renames, self.nested, self.methods = {}, [], []
        for path, names in MAPPING.items():
            file = self.files.get(path)
            if file is None:
                self.notes.append(f"MISSING FILE {path}")
                continue
            for old, new in names.items():
                new, receivers = new if isinstance(new, tuple) else (new, None)
                label = f"{path}:{old}"
                head, _, last = old.rpartition(".")
                if not head:
                    if old not in file.top.bound and new not in file.top.bound:
                        self.notes.append(f"GONE {label}: neither it nor {new} is there")
                        continue
                    self.global_renames[path, old] = new
                elif head in file.classes:
                    inner = file.classes[head][1]
                    if last not in inner.bound and new not in inner.bound:
                        self.notes.append(f"GONE {label}: neither it nor {new} is there")
                        continue
                    self.methods.append((path, head, last, new, receivers))
                else:
                    found = file.functions.get(old)
                    if not found:
                        done = f"{head}.{new}" in file.functions
                        if not done:
                            self.notes.append(f"GONE {label}")
                        continue
                    self.nested.append((path, found[0][1], last, new))

    def collect(self):
        """Fill self.edits: label -> list of (file, offset, old, new), for everything but refused labels."""
        self.edits = {}
        self.text_renames = {}  # file -> {old: new} for backticks
        exports = {}  # (module, name) -> (label, new)
        for (path, old), new in self.global_renames.items():
            exports[self.files[path].module, old] = (f"{path}:{old}", new)
        # Re-exports, until nothing more is found.
        renamed = {}  # (path, id(scope), name) -> (label, new)
        for (path, old), new in self.global_renames.items():
            renamed[path, id(self.files[path].top), old] = (f"{path}:{old}", new)
        changed = True
        while changed:
            changed = False
            for file in self.files.values():
                for scope in file.scopes:
                    for bound, targets in scope.imports.items():
                        for target in targets:
                            if target[0] != "from":
                                continue
                            found = exports.get((target[1], target[2]))
                            if not found or bound != target[2]:
                                continue
                            if f"{target[1]}.{target[2]}" in self.by_module and not self.defines(target[1], target[2], found[1]):
                                continue
                            key = (file.path, id(scope), bound)
                            if key not in renamed:
                                renamed[key] = found
                                changed = True
                            if scope is file.top and (file.module, bound) not in exports:
                                exports[file.module, bound] = found
                                changed = True
        for path, scope, old, new in self.nested:
            renamed[path, id(scope), old] = (f"{path}:{old} (nested)", new)
        self.exports, self.renamed = exports, renamed
        self.export_modules = {module for module, _ in exports}
        for file in self.files.values():
            self.collect_names(file)
        self.collect_methods()
        for file in self.files.values():
            self.collect_strings(file)

    def defines(self, module, old, new):
        file = self.by_module.get(module)
        return file is not None and (old in file.top.bound or new in file.top.bound)

    def add(self, label, file, offset, old, new):
        if label in self.refused:
            return
        if file.source[offset : offset + len(old)] != old:
            raise SystemExit(f"{file.path}: expected {old} at offset {offset}, line {self.line(file, offset)}: {label}")
        self.edits.setdefault(label, set()).add((file.path, offset, old, new))
        self.text_renames.setdefault(file.path, {}).setdefault(old, set()).add(new)

    def line(self, file, offset):
        return file.source.count("\n", 0, offset) + 1

    def refuse(self, label, why):
        if label not in self.refused:
            self.refused[label] = why
            self.edits.pop(label, None)

    def in_fstring(self, file, node):
        while node in file.parents:
            node = file.parents[node]
            if isinstance(node, ast.JoinedStr):
                outer = node
                while outer in file.parents and isinstance(file.parents[outer], (ast.JoinedStr, ast.FormattedValue)):
                    outer = file.parents[outer]
                while node in file.parents:
                    node = file.parents[node]
                    if isinstance(node, ast.JoinedStr):
                        outer = node
                return outer
        return None

    def spot(self, file, node, old, attribute):
        """Return the offset of a Name's or Attribute's identifier."""
        joined = self.in_fstring(file, node) if sys.version_info < (3, 12) else None
        if joined is None:
            if attribute:
                return file.offset(node.end_lineno, node.end_col_offset) - len(old)
            return file.offset(node.lineno, node.col_offset)
        # Before Python 3.12 positions in f-strings are wrong: the n-th reference in the string's braces.
        same = [
            one
            for one in ast.walk(joined)
            if (isinstance(one, ast.Attribute) and one.attr == old) or (isinstance(one, ast.Name) and one.id == old)
        ]
        begin = file.offset(joined.lineno, joined.col_offset)
        end = file.offset(joined.end_lineno, joined.end_col_offset)
        text = file.source[begin:end]
        places = [
            match.start() for match in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text) if self.in_braces(text, match.start())
        ]
        if len(places) != len(same):
            raise SystemExit(f"{file.path}:{joined.lineno}: cannot locate {old} in an f-string ({places}, {len(same)})")
        # Order of evaluation is the order of the text here, as attributes and names do not nest the same identifier.
        order = sorted(same, key=lambda one: self.walk_order(joined, one))
        return begin + places[order.index(node)]

    def walk_order(self, top, node):
        number = 0

        def walk(one):
            nonlocal number
            if isinstance(one, ast.Attribute):
                found = walk(one.value)
                number += 1
                return number if one is node else found
            number += 1
            if one is node:
                return number
            for child in ast.iter_child_nodes(one):
                found = walk(child)
                if found is not None:
                    return found
            return None

        return walk(top)

    def in_braces(self, text, place):
        depth = 0
        index = 0
        while index < place:
            if text[index] in "{}" and text[index : index + 2] in ("{{", "}}") and not (depth and text[index] == "}"):
                index += 2
                continue
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            index += 1
        return depth > 0

    def check_name(self, file, scope, target, old, new, label, where):
        """Refuse if at a use of `old` the new name would mean something between the use and the binding."""
        one, first = scope, True
        while one is not None and one is not target:
            if (first or one.kind != "class") and new in one.bound:
                self.refuse(label, f"{new} is bound in {file.path}:{getattr(one.node, 'lineno', 0)}, around {where}")
                return
            first = False
            one = one.parent

    def collect_names(self, file):
        mine = {key[2]: True for key in self.renamed if key[0] == file.path}
        # The binding scopes themselves: nothing else may have the new name there.
        for (path, scope_id, old), (label, new) in self.renamed.items():
            if path != file.path:
                continue
            scope = next(one for one in file.scopes if id(one) == scope_id)
            is_done = old not in scope.bound
            if not is_done and new in scope.bound:
                self.refuse(label, f"{path} binds {new} already")
            if not is_done and self.uses_outer(file, scope, new):
                self.refuse(label, f"{path} uses {new} of the builtins or an outer scope")
            if keyword.iskeyword(new):
                self.refuse(label, f"{new} is a keyword")
        for node, scope in file.scope_of.items():
            if isinstance(node, ast.Name) and node.id in mine:
                target = scope.resolve(node.id)
                found = target and self.renamed.get((file.path, id(target), node.id))
                if found:
                    label, new = found
                    self.check_name(file, scope, target, node.id, new, label, f"line {node.lineno}")
                    self.add(label, file, self.spot(file, node, node.id, False), node.id, new)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name in mine:
                found = self.renamed.get((file.path, id(scope), node.name))
                if found:
                    self.add(found[0], file, self.def_offset(file, node), node.name, found[1])
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                for name in node.names:
                    target = scope.resolve(name)
                    if name in mine and target and (file.path, id(target), name) in self.renamed:
                        self.refuse(self.renamed[file.path, id(target), name][0], f"global or nonlocal in {file.path}")
            elif isinstance(node, ast.Attribute):
                module = self.module_of(file, scope, node.value)
                found = module and self.exports.get((module, node.attr))
                if found and f"{module}.{node.attr}" not in self.by_module | {}:
                    self.add(found[0], file, self.spot(file, node, node.attr, True), node.attr, found[1])
                elif found and self.defines(module, node.attr, found[1]):
                    self.add(found[0], file, self.spot(file, node, node.attr, True), node.attr, found[1])
            elif isinstance(node, ast.alias):
                parent = file.parents[node]
                if isinstance(parent, ast.ImportFrom):
                    module = file.resolve_from(parent.module, parent.level)
                    found = self.exports.get((module, node.name))
                    if found and f"{module}.{node.name}" in self.by_module and not self.defines(module, node.name, found[1]):
                        found = None
                    if found:
                        label, new = found
                        self.add(label, file, file.offset(node.lineno, node.col_offset), node.name, new)
                        if node.asname == new:
                            self.refuse(label, f"{file.path}:{node.lineno} would import {new} as {new}")
        # Aliases are not in scope_of by _visit's loop for names in nested statements: they are (see _visit).

    def uses_outer(self, file, scope, new):
        for node, at in file.scope_of.items():
            if isinstance(node, ast.Name) and node.id == new:
                one = at
                while one is not None and one is not scope:
                    one = one.parent
                if one is scope:
                    target = at.resolve(new)
                    inside = target
                    while inside is not None and inside is not scope:
                        inside = inside.parent
                    if target is None or inside is None:
                        return True
        return False

    def def_offset(self, file, node):
        first = file.offset(node.lineno, node.col_offset)
        match = re.compile(r"(?:async\s+)?(?:def|class)\s+").match(file.source, first)
        return match.end()

    # --- methods ---------------------------------------------------------------------------------------------------

    def collect_methods(self):
        owners = {}  # attribute -> classes that have it
        wanted = {old for _, _, old, _, _ in self.methods}
        for file in self.files.values():
            for name in file.classes:
                for member in self.members((file.path, name)) & wanted:
                    owners.setdefault(member, set()).add((file.path, name))
        self.method_families = {}
        for path, head, old, new, receivers in self.methods:
            label = f"{path}:{head}.{old}"
            family = self.relatives((path, head), old) | (self.relatives((path, head), new) if new in self.members((path, head)) else set())
            self.method_families[label] = (family, old, new, receivers)
        groups = {}
        for family, old, new, _ in self.method_families.values():
            groups.setdefault((old, new), set()).update(family)
        self.unresolved = []
        # Which attribute belongs to which label.
        by_old = {}
        for label, (family, old, new, receivers) in self.method_families.items():
            by_old.setdefault(old, []).append((label, family, new, receivers))
            for key in family:
                members = self.members(key)
                if old in members and new in members:
                    self.refuse(label, f"{key[0]}:{key[1]} has {new} already")
                one = [key]
                while one:
                    base = one.pop()
                    if new in self.members(base) and base not in family:
                        self.refuse(label, f"{base[0]}:{base[1]}, a base of {key[1]}, has {new}")
                    if new in self.members(base) and base in family and old in set().union(*map(self.members, family)) and label not in self.refused:
                        self.refuse(label, f"{base[0]}:{base[1]} has {new}")
                    one += self.bases.get(base, [])
        for file in self.files.values():
            for name, (node, inner, _) in file.classes.items():
                for child in node.body:
                    if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.name in by_old:
                        for label, family, new, _ in by_old[child.name]:
                            if (file.path, name) in family:
                                self.add(label, file, self.def_offset(file, child), child.name, new)
            for node, scope in file.scope_of.items():
                if isinstance(node, ast.Name) and node.id in by_old and scope.kind == "class":
                    # Used by its bare name in the class's body.
                    key = self.class_key(file, scope)
                    for label, family, new, _ in by_old[node.id]:
                        if key in family and scope.resolve(node.id) is scope:
                            self.add(label, file, self.spot(file, node, node.id, False), node.id, new)
                if not isinstance(node, ast.Attribute) or node.attr not in by_old:
                    continue
                if self.module_of(file, scope, node.value):
                    continue
                label, new, why = self.method_of(file, scope, node, by_old[node.attr], owners.get(node.attr, set()), groups)
                if label:
                    self.add(label, file, self.spot(file, node, node.attr, True), node.attr, new)
                elif why:
                    self.unresolved.append(f"{file.path}:{node.lineno}: {ast.unparse(node)[:80]}: {why}")

    def class_key(self, file, scope):
        for name, (_, inner, _) in file.classes.items():
            if inner is scope:
                return (file.path, name)
        return None

    def enclosing_class(self, file, scope):
        while scope is not None:
            if scope.kind == "class":
                return self.class_key(file, scope)
            scope = scope.parent
        return None

    def method_of(self, file, scope, node, candidates, owners, groups):
        value = node.value
        text = ast.unparse(value)
        is_super = isinstance(value, ast.Call) and ast.unparse(value.func) == "super"
        if text in ("self", "cls") or is_super:
            key = self.enclosing_class(file, scope)
            for label, family, new, _ in candidates:
                if key in family or (key and self.ancestors(key) & family and node.attr not in self.members(key) - self.done(key)):
                    return label, new, ""
            return None, "", ""
        found = self.class_of(file, scope, value)
        if found:
            for label, family, new, _ in candidates:
                if found in family:
                    return label, new, ""
            return None, "", ""
        if isinstance(value, ast.Name):
            where = scope.resolve(value.id)
            annotation = where and where.annotations.get(value.id)
            if annotation and annotation not in ("Any",):
                for label, family, new, _ in candidates:
                    if any(re.search(rf"\b{re.escape(key[1].split('.')[-1])}\b", annotation) for key in family):
                        return label, new, ""
                if any(re.search(rf"\b{re.escape(key[1].split('.')[-1])}\b", annotation) for key in owners):
                    return None, "", ""
        news = {new for _, _, new, _ in candidates}
        for label, family, new, receivers in candidates:
            if receivers is not None and (re.fullmatch(receivers, text) or re.fullmatch(receivers, f"{file.path}::{text}")):
                if isinstance(node.ctx, ast.Store):
                    return None, "", "assigned"
                return label, new, ""
        unions = set().union(*(family for _, family, _, _ in candidates))
        if len(news) == 1 and all(receivers is None for *_, receivers in candidates) and owners <= unions:
            return candidates[0][0], candidates[0][2], ""
        if not node.attr.startswith("_"):
            return None, "", "not known to be the method"
        return None, "", "private, of another object"

    def ancestors(self, key):
        found, todo = set(), list(self.bases.get(key, []))
        while todo:
            one = todo.pop()
            found.add(one)
            todo += self.bases.get(one, [])
        return found

    def done(self, key):
        return set()

    # --- strings ---------------------------------------------------------------------------------------------------

    def collect_strings(self, file):
        self.string_edits = getattr(self, "string_edits", [])
        for node, scope in file.scope_of.items():
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            function = ast.unparse(node.func)
            if function.split(".")[-1] not in ("setattr", "delattr", "getattr", "hasattr", "object", "multiple", "spy"):
                continue
            target, name = node.args[0], node.args[1]
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                continue
            label = new = None
            module = self.module_of(file, scope, target)
            if module:
                found = self.exports.get((module, name.value))
                if found:
                    label, new = found
            else:
                for one, (family, old, renamed, receivers) in self.method_families.items():
                    if old != name.value:
                        continue
                    key = self.class_of(file, scope, target)
                    text = ast.unparse(target)
                    if key in family or (key and self.ancestors(key) & family):
                        label, new = one, renamed
                    elif not key and receivers and re.fullmatch(receivers, text):
                        label, new = one, renamed
                    elif not key:
                        self.unresolved.append(f"{file.path}:{node.lineno}: {ast.unparse(node)[:90]}: name in a string")
            if label:
                begin = file.offset(name.lineno, name.col_offset)
                offset = file.source.index(name.value, begin)
                self.add(label, file, offset, name.value, new)
        # Dotted paths, "module:function" and imports in the text of strings (programs that tests run).
        for token in file.tokens:
            if token.type != tokenize.STRING or "vcdl" not in token.string and "tests" not in token.string:
                continue
            begin = file.token_offset(token.start)
            modules = {module for module in self.export_modules if module in token.string}
            for (module, old), (label, new) in self.exports.items() if modules else ():
                if module not in modules:
                    continue
                for match in re.finditer(rf"(?<![\w.]){re.escape(module)}[.:]({re.escape(old)})(?!\w)", token.string):
                    self.add(label, file, begin + match.start(1), old, new)
                pattern = rf"from {re.escape(module)} import ([\w, ()]*?)(?<!\w)({re.escape(old)})(?!\w)(?! as)"
                for match in re.finditer(pattern, token.string):
                    self.add(label, file, begin + match.start(2), old, new)
                    for use in re.finditer(rf"(?<![\w.\"']){re.escape(old)}(?=\()", token.string):
                        self.add(label, file, begin + use.start(), old, new)
                last = module.rpartition(".")[2]
                if re.search(rf"(import {re.escape(module)} as (\w+)|from {re.escape(module.rpartition('.')[0])} import [\w, ]*\b{last}\b)", token.string):
                    for use in re.finditer(rf"(?<![\w.]){last}\.({re.escape(old)})(?!\w)", token.string):
                        self.add(label, file, begin + use.start(1), old, new)
            for label, (family, old, new, _) in self.method_families.items():
                for key in family if old in token.string else ():
                    dotted = f"{self.files[key[0]].module}.{key[1]}"
                    for match in re.finditer(rf"(?<![\w.]){re.escape(dotted)}\.({re.escape(old)})(?!\w)", token.string):
                        self.add(label, file, begin + match.start(1), old, new)

    # --- texts -----------------------------------------------------------------------------------------------------

    def backticks(self):
        """Return edits (file, offset, old, new) of names in backticks in comments and docstrings, and in Markdown."""
        found = []
        distinct = {}
        for (path, old), new in self.global_renames.items():
            distinct.setdefault(old, set()).add(new)
        for _, _, old, new, _ in self.methods:
            distinct.setdefault(old, set()).add(new)
        for path, file in self.files.items():
            mine = self.text_renames.get(path, {})
            docstrings = set()
            for node in ast.walk(file.tree):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                    docstrings.add((node.lineno, len(file.lines[node.lineno - 1].encode()[: node.col_offset].decode())))
            for token in file.tokens:
                is_text = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start in docstrings)
                if not is_text:
                    continue
                begin = file.token_offset(token.start)
                for match in re.finditer(r"`([\w.]*?)(\w+)(\([^`]*\))?`", token.string):
                    prefix, old = match[1], match[2]
                    if old not in distinct or (path, old) in SKIP_TEXT:
                        continue
                    new = None
                    if old in mine and len(mine[old]) == 1:
                        new = next(iter(mine[old]))
                    elif self.by_tail(prefix, old):
                        new = self.by_tail(prefix, old)
                    elif len(distinct[old]) == 1 and (old.startswith("_") or "_" in old) and self.unique(old):
                        new = next(iter(distinct[old]))
                    line = self.line(file, begin + match.start())
                    if new:
                        found.append((path, begin + match.start(2), old, new))
                        self.text_log.append(f"{path}:{line}: {match[0]} -> {new}")
                    else:
                        self.text_left.append(f"{path}:{line}: {match[0]}")
        self.markdown = {}
        for name in self.names:
            if not name.endswith((".md", ".toml", ".yml", ".yaml", ".html", ".cfg", ".txt", "Makefile")):
                continue
            source = (self.root / name).read_text(encoding="utf-8", errors="replace")
            for (module, old), (label, new) in self.exports.items():
                if label in self.refused:
                    continue
                for match in re.finditer(rf"(?<![\w.]){re.escape(module)}[.:]({re.escape(old)})(?!\w)", source):
                    found.append((name, match.start(1), old, new))
                    self.text_log.append(f"{name}:{source.count(chr(10), 0, match.start()) + 1}: {match[0]} -> {new}")
            for match in re.finditer(r"`([\w.]*?)(\w+)(\([^`\n]*\))?`", source):
                old = match[2]
                if old not in distinct:
                    continue
                line = source.count("\n", 0, match.start()) + 1
                if self.by_tail(match[1], old):
                    found.append((name, match.start(2), old, self.by_tail(match[1], old)))
                    self.text_log.append(f"{name}:{line}: {match[0]} -> {self.by_tail(match[1], old)}")
                elif len(distinct[old]) == 1 and "_" in old and self.unique(old) and (name, old) not in SKIP_TEXT:
                    found.append((name, match.start(2), old, next(iter(distinct[old]))))
                    self.text_log.append(f"{name}:{line}: {match[0]} -> {next(iter(distinct[old]))}")
                else:
                    self.text_left.append(f"{name}:{line}: {match[0]}")
        return found

    def by_tail(self, prefix, old):
        """Return the new name of `module.old`, where module is the last part of one module's name."""
        tail = prefix.rstrip(".").rpartition(".")[2]
        found = {new for (module, name), (_, new) in self.exports.items() if name == old and module.rpartition(".")[2] == tail}
        return next(iter(found)) if tail and len(found) == 1 else None

    def unique(self, old):
        """Whether a name is nowhere bound as something that is not renamed."""
        if not hasattr(self, "bindings"):
            self.bindings = {}
            for file in self.files.values():
                for scope in file.scopes:
                    for name in scope.bound:
                        self.bindings.setdefault(name, set()).add((file.path, id(scope)))
                for node in ast.walk(file.tree):
                    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                        self.bindings.setdefault(node.attr, set()).add((file.path, "attribute"))
        places = self.bindings.get(old, set())
        for path, scope in places:
            if (path, scope, old) in self.renamed:
                continue
            families = [family for family, name, _, _ in self.method_families.values() if name == old]
            file = self.files[path]
            keys = {(path, name) for name, (_, inner, _) in file.classes.items() if id(inner) == scope}
            if keys and any(keys & family for family in families):
                continue
            return False
        return True

    # --- applying --------------------------------------------------------------------------------------------------

    def run(self, write):
        self.text_log, self.text_left = [], []
        self.plan()
        # A refusal found late drops edits found early, and what depended on them: until nothing more is refused.
        while True:
            before = set(self.refused)
            for label in before:
                path, _, old = label.removesuffix(" (nested)").partition(":")
                self.global_renames.pop((path, old), None)
                self.methods = [one for one in self.methods if f"{one[0]}:{one[1]}.{one[2]}" != label]
                self.nested = [one for one in self.nested if f"{one[0]}:{one[2]} (nested)" != label]
            self.string_edits = []
            self.collect()
            if set(self.refused) == before:
                break
        places = {}
        for label, edits in self.edits.items():
            for path, offset, old, new in edits:
                other = places.setdefault((path, offset), (old, new, label))
                if other[:2] != (old, new):
                    raise SystemExit(f"{path}: {label} and {other[2]} want the same place")
        for path, offset, old, new in self.backticks():
            places.setdefault((path, offset), (old, new, "text"))
        by_file = {}
        for (path, offset), (old, new, _) in places.items():
            by_file.setdefault(path, []).append((offset, old, new))
        for path, edits in sorted(by_file.items()):
            source = self.files[path].source if path in self.files else (self.root / path).read_text(encoding="utf-8")
            for offset, old, new in sorted(edits, reverse=True):
                assert source[offset : offset + len(old)] == old, (path, offset, old)
                source = source[:offset] + new + source[offset + len(old) :]
            if path in self.files:
                self.compare(path, source)
            if write:
                (self.root / path).write_text(source, encoding="utf-8")
        for path, old, new in EXTRA:
            file = self.root / path
            text = file.read_text(encoding="utf-8")
            if old in text:
                if write:
                    file.write_text(text.replace(old, new), encoding="utf-8")
            elif new not in text:
                self.notes.append(f"EXTRA not applicable in {path}: {old}")
        return len(places), len(by_file)

    def compare(self, path, source):
        """Fail unless two trees differ only in identifiers, and in strings only by those."""
        pairs = set()

        def walk(one, two, where):
            assert type(one) is type(two), (path, where, one, two)
            if isinstance(one, ast.AST):
                for field in one._fields:
                    walk(getattr(one, field, None), getattr(two, field, None), getattr(one, "lineno", where))
            elif isinstance(one, list):
                assert len(one) == len(two), (path, where)
                for first, second in zip(one, two):
                    walk(first, second, where)
            elif one != two:
                assert isinstance(one, str), (path, where, one, two)
                pairs.add((one, two))

        walk(self.files[path].tree, ast.parse(source), 0)
        allowed = {(old, new) for edits in self.edits.values() for _, _, old, new in edits}
        for one, two in pairs:
            if (one, two) in allowed:
                continue
            first, second = re.split(r"(\w+)", one), re.split(r"(\w+)", two)
            assert len(first) == len(second), (path, one, two)
            for a, b in zip(first, second):
                assert a == b or (a, b) in allowed, (path, a, b)

    def remaining(self):
        """Yield file:line of each old name that is still a token or in backticks, and is not plainly another thing."""
        olds = {}
        for path, names in MAPPING.items():
            for old in names:
                olds.setdefault(old.rpartition(".")[2], set()).add(path)
        for name in self.names:
            try:
                source = (self.root / name).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            if name.endswith(".lock"):
                continue
            if name.endswith(".py"):
                for token in tokenize.generate_tokens(io.StringIO(source).readline):
                    if token.type == tokenize.NAME and token.string in olds:
                        yield token.string, f"{name}:{token.start[0]}: {token.line.strip()[:110]}"
                    elif token.type in (tokenize.STRING, tokenize.COMMENT):
                        for word in set(re.findall(r"\w+", token.string)) & set(olds):
                            if "_" in word or f"`{word}" in token.string or re.search(rf"[.\"']{word}[\"'(]", token.string):
                                yield word, f"{name}:{token.start[0]}: (text) {token.line.splitlines()[0].strip()[:100]}"
            else:
                for number, line in enumerate(source.splitlines(), 1):
                    for word in set(re.findall(r"\w+", line)) & set(olds):
                        if "_" in word or f"`{word}" in line:
                            yield word, f"{name}:{number}: (text) {line.strip()[:100]}"


def wrap(root):
    """Split what the new names made longer than 120 columns: strings at a blank, comments at a word."""
    names = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        path = Path(root) / name
        source = path.read_text(encoding="utf-8")
        if max(map(len, source.splitlines()), default=0) <= _WIDTH:
            continue
        result = source
        for _ in range(40):
            shorter = _wrap_once(result)
            if shorter == result:
                break
            result = shorter
        if result != source:
            assert ast.dump(ast.parse(source)) == ast.dump(ast.parse(result)), name
            path.write_text(result, encoding="utf-8")
            print(f"wrapped {name}")
        for number, line in enumerate(result.splitlines(), 1):
            if len(line) > _WIDTH and "noqa" not in line:
                print(f"{name}:{number}: still {len(line)} columns")


_WIDTH = 120


def _wrap_once(source):
    lines = source.split("\n")
    last = {}
    inside = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT) or token.string == ",":
            last.setdefault(token.start[0], []).append(token)
    for number, line in enumerate(lines, 1):
        if len(line) <= _WIDTH or not last.get(number):
            continue
        tokens = last[number]
        if tokens[-1].type == tokenize.COMMENT and line.lstrip().startswith("# "):
            indent = line[: len(line) - len(line.lstrip())]
            at = line.rfind(" ", 0, _WIDTH + 1)
            rest = line[at + 1 :]
            following = lines[number] if number < len(lines) else ""
            lines[number - 1] = line[:at]
            if following.startswith(f"{indent}# "):
                lines[number] = f"{indent}# {rest} {following[len(indent) + 2:]}"
            else:
                lines.insert(number, f"{indent}# {rest}")
            return "\n".join(lines)
        comma = "," if tokens[-1].string == "," and line.endswith(",") else ""
        strings = [one for one in tokens if one.type == tokenize.STRING]
        if not strings or strings[-1].start[0] != strings[-1].end[0] or strings[-1].end[1] + len(comma) != len(line):
            continue
        token = strings[-1]
        match = re.fullmatch(r"(\w*)([\"'])(.*)[\"']", token.string, re.DOTALL)
        if not match or token.string.lstrip("frbFRB").startswith(('"""', "\'\'\'")):
            continue
        prefix, quote, body = match.groups()
        before = line[: token.start[1]]
        alone = not before.strip()
        if not alone and not re.search(r"(return|=|:|\() ?$", before.rstrip() + " "):
            continue
        indent = before if alone else line[: len(line) - len(line.lstrip())] + "    "
        room = _WIDTH - len(indent) - len(prefix) - 2
        at, depth, index, best = 0, 0, 0, None
        while index < len(body):
            pair = body[index : index + 2]
            if "f" in prefix and depth == 0 and pair in ("{{", "}}"):
                index += 2
                continue
            if body[index] == "\\" and depth == 0:
                index += 2
                continue
            if "f" in prefix:
                depth += {"{": 1, "}": -1}.get(body[index], 0)
            if body[index] == " " and depth == 0 and index < room:
                best = index + 1
            index += 1
        if not best or best == len(body):
            continue

        def piece(text):
            if "f" in prefix and not re.search(r"(?<!\{)\{(?!\{)", text.replace("{{", "")):
                return prefix.replace("f", "") + quote + text.replace("{{", "{").replace("}}", "}") + quote
            return prefix + quote + text + quote

        parts = [indent + piece(body[:best]), indent + piece(body[best:])]
        if alone:
            parts[-1] += comma
        else:
            parts = [f"{before}(", *parts, f"{indent[:-4]}){comma}"]
        following = lines[number] if number < len(lines) else ""
        match = re.fullmatch(rf"{indent}(f?){quote}(.*){quote}(,?)", following)
        if alone and not comma and match and prefix in ("", "f") and quote not in match[2].replace(f"\\{quote}", ""):
            # The next piece of the same string takes what does not fit here.
            rest, further = body[best:], match[2]
            if prefix != match[1] and "f" not in prefix:
                rest = rest.replace("{", "{{").replace("}", "}}")
            elif prefix != match[1]:
                further = further.replace("{", "{{").replace("}", "}}")
            prefix_before, prefix = prefix, prefix or match[1]
            joined = piece(rest + further)
            prefix = prefix_before
            lines[number - 1 : number + 1] = [parts[0], f"{indent}{joined}{match[3]}"]
            return "\n".join(lines)
        lines[number - 1 : number] = parts
        return "\n".join(lines)
    return source


def main():
    if "--wrap" in sys.argv:
        wrap(next((one for one in sys.argv[1:] if not one.startswith("--")), "."))
        return
    write = "--dry" not in sys.argv
    roots = [one for one in sys.argv[1:] if not one.startswith("--")]
    root = roots[0] if roots else "."
    renamer = Renamer(root)
    count, files = renamer.run(write)
    for label, edits in sorted(renamer.edits.items()):
        new = next(iter(edits))[3]
        print(f"  {label} -> {new}: {len(edits)}")
    print("\n# in texts")
    print("\n".join(f"  {line}" for line in renamer.text_log))
    print("\n# in backticks, left as they are")
    print("\n".join(f"  {line}" for line in renamer.text_left))
    print("\n# attributes of the same name that are not known to be the method, left")
    print("\n".join(f"  {line}" for line in sorted(renamer.unresolved)))
    print("\n# notes")
    print("\n".join(f"  {line}" for line in renamer.notes))
    print("\n# REFUSED")
    for label, why in sorted(renamer.refused.items()):
        print(f"  {label}: {why}")
    left = sorted(set(Renamer(root).remaining())) if write else []
    by_name = {}
    for word, place in left:
        by_name.setdefault(word, []).append(place)
    Path("/tmp/names4.remaining").write_text(
        "".join(f"== {word} ({len(places)})\n" + "".join(f"  {one}\n" for one in places) for word, places in sorted(by_name.items()))
    )
    print(
        f"\n{len(renamer.edits)} functions, {count} places in {files} files; refused {len(renamer.refused)}; "
        f"{len(left)} remaining occurrences of old names in /tmp/names4.remaining{'' if write else ' (not written: --dry)'}"
    )


if __name__ == "__main__":
    main()
