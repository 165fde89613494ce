"""A small stand-in for a BOINC server, driven by a real client: real tables, a folder as make_project leaves
it, a web server.

    with start_mariadb(folder) as mariadb:
        project = StandinProject.make(folder / "project", Database.of(mariadb))
        ...   apps/vcdl/1.00/x86_64-pc-linux-gnu/version.xml with its files, templates/, bin/vcdl_validate
        project.update_versions()
        client = BoincClient(folder / "client", project.url, project.account_key)
        with StandinServer(project) as server, client:
            ...   bin/create_work, `client.update()`, daemons of ours with `project.environment` in theirs

The server answers schedulers' requests, sends files, receives uploads, and transitions, validates (with
bin/vcdl_validate, when it is there) and deletes as BOINC's daemons do, twice a second. It reads config.xml anew
at each request, and believes these settings in it: cache_md5_info, dont_generate_upload_certificates,
ignore_upload_certificates, min_sendwork_interval, msg_to_host, next_rpc_delay, resend_lost_results,
send_result_abort, uldl_dir_fanout. Without a web server, `transition(project)` makes one pass, and `cancel`
does what bin/cancel_jobs does.

What it does not know: quorums above 1, credit, plan classes with a graphics card, assigned jobs, homogeneous
redundancy, quotas.
"""

from tests.boinc.standin.config import Database
from tests.boinc.standin.project import StandinProject
from tests.boinc.standin.server import StandinServer
from tests.boinc.standin.transitioner import cancel, transition

__all__ = ["Database", "StandinProject", "StandinServer", "cancel", "transition"]
