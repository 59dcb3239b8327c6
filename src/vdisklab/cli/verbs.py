"""The verbs of the command line."""

VERBS = {
    "doctor": "doctor:doctor",
    "advise": "advise:advise",
    "profiles": "profiles:profiles",
    "plan": "plan:plan",
    "run": "run:run",
    "density": "density:density",
    "rank": "rank:rank",
    "compare": "compare:compare",
    "table": "table:table",
    "claims": "claims:claims",
    "show": "show:show",
    "runs": "runs:runs",
    "recommend": "recommend:recommend",
    "export": "export:export",
    "audit": "audit:audit",
    "powercut": "powercut:powercut",
    "report": "report:report",
    "method": "method:method",
    "clean": "clean:clean",
    "export-data": "export_data:export_data_verb",
    "import": "importing:import_files",
    "fleet": "fleet:fleet_verbs",
    "lab": "lab:lab_verbs",
}
"""The module and function of each verb, in the order of the help."""
