CREATE TABLE campaigns (
	id VARCHAR COLLATE "C" NOT NULL,
	env VARCHAR NOT NULL,
	kind VARCHAR NOT NULL,
	nodes JSON NOT NULL,
	site_digest VARCHAR NOT NULL,
	abi VARCHAR NOT NULL,
	status VARCHAR NOT NULL,
	begun FLOAT NOT NULL,
	ended FLOAT,
	summary JSON NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE children (
	id SERIAL NOT NULL,
	pid INTEGER NOT NULL,
	start_ticks BIGINT NOT NULL,
	boot_id VARCHAR NOT NULL,
	what VARCHAR NOT NULL,
	begun FLOAT NOT NULL,
	ended FLOAT,
	PRIMARY KEY (id)
);
CREATE TABLE events (
	id SERIAL NOT NULL,
	campaign VARCHAR NOT NULL,
	node VARCHAR NOT NULL,
	phase VARCHAR NOT NULL,
	level VARCHAR NOT NULL,
	text VARCHAR NOT NULL,
	at FLOAT NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX events_newest ON events (campaign, node, id);
CREATE INDEX ix_events_campaign ON events (campaign);
CREATE TABLE nodes (
	name VARCHAR COLLATE "C" NOT NULL,
	state VARCHAR NOT NULL,
	reason VARCHAR NOT NULL,
	phase VARCHAR NOT NULL,
	campaign VARCHAR NOT NULL,
	epoch INTEGER NOT NULL,
	since FLOAT NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE operations (
	token SERIAL NOT NULL,
	node VARCHAR NOT NULL,
	operation VARCHAR NOT NULL,
	desired VARCHAR NOT NULL,
	epoch INTEGER NOT NULL,
	status VARCHAR NOT NULL,
	observed JSON NOT NULL,
	result JSON NOT NULL,
	begun FLOAT NOT NULL,
	ended FLOAT,
	PRIMARY KEY (token)
);
CREATE INDEX operations_key ON operations (node, operation, desired, epoch);
CREATE TABLE transitions (
	id SERIAL NOT NULL,
	node VARCHAR NOT NULL,
	state VARCHAR NOT NULL,
	reason VARCHAR NOT NULL,
	campaign VARCHAR NOT NULL,
	at FLOAT NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE evidence (
	id VARCHAR COLLATE "C" NOT NULL,
	campaign VARCHAR NOT NULL,
	gate VARCHAR NOT NULL,
	target VARCHAR NOT NULL,
	outcome VARCHAR NOT NULL,
	started VARCHAR NOT NULL,
	record TEXT NOT NULL,
	sha256 VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX ix_evidence_campaign ON evidence (campaign);
CREATE INDEX ix_evidence_target ON evidence (target);
CREATE TABLE evidence_nodes (
	record_id VARCHAR NOT NULL,
	node VARCHAR NOT NULL,
	PRIMARY KEY (record_id, node)
);
CREATE INDEX ix_evidence_nodes_node ON evidence_nodes (node);
CREATE TABLE about (
	version SERIAL NOT NULL,
	env VARCHAR NOT NULL,
	id VARCHAR NOT NULL,
	PRIMARY KEY (version)
);
CREATE TABLE controllers (
	number SERIAL NOT NULL,
	host VARCHAR NOT NULL,
	boot_id VARCHAR NOT NULL,
	pid INTEGER NOT NULL,
	backend INTEGER NOT NULL,
	what VARCHAR NOT NULL,
	begun FLOAT NOT NULL,
	PRIMARY KEY (number)
);
