-- A destination with other headers, secrets or another sink begins anew, as one with another address does: since when it fails says nothing of it.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.check_destination() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    header record;
    secret text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW.disabled_at IS NULL AND OLD.disabled_at IS NOT NULL THEN
            NEW.disabled_reason := NULL; -- it begins anew
            NEW.failing_since := NULL;
        ELSIF (NEW.url, NEW.headers, NEW.secrets, NEW.sink) IS DISTINCT FROM (OLD.url, OLD.headers, OLD.secrets, OLD.sink) THEN
            NEW.failing_since := NULL;
        END IF;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        END IF;
        IF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('destinations', 'id', 'destinations.id cannot be changed: jobs name it',
                'Insert a destination with the new id.');
        END IF;
    END IF;
    PERFORM pacer.check_id('destinations', 'id', NEW.id);
    IF NEW.sink IS NOT NULL THEN
        PERFORM pacer.check_id('destinations', 'sink', NEW.sink);
    END IF;
    IF NEW.url IS NULL OR length(NEW.url) > 2048 OR NEW.url COLLATE "C" !~ '^https?://[^/?#@]+([/?][!-~]*)?$'
            OR NEW.url COLLATE "C" !~ '^[!-~]+$' OR position('#' IN NEW.url) > 0 THEN
        PERFORM pacer.refuse('destinations', 'url', 'destinations.url must be an address without a user and a fragment',
            'Use one of at most 2048 characters, such as https://hooks.example.com/orders; a user and a password belong into headers, as a reference.');
    END IF;
    IF jsonb_typeof(NEW.headers) IS DISTINCT FROM 'object' THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers must be a JSON object of names and values',
            'Use one such as {"x-tenant": "blue", "authorization": "file:shop-7"}.');
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(NEW.headers)) > 32 THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers has more than 32 headers', 'Use fewer.');
    END IF;
    FOR header IN SELECT e.key AS name, e.value AS value, e.value #>> '{}' AS content FROM jsonb_each(NEW.headers) AS e LOOP
        IF header.name COLLATE "C" !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,128}$' OR jsonb_typeof(header.value) <> 'string' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: %L must be the name of a header, with a text', left(header.name, 64)),
                'Use one such as {"x-tenant": "blue"}.');
        ELSIF length(header.content) > 2048 OR header.content ~ '[\x01-\x08\x0A-\x1F\x7F]' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L must be one line of at most 2048 characters', header.name),
                'Use a shorter one, or a reference, file:NAME.');
        ELSIF header.name ~* '(authorization|cookie|secret|token|password|api-?key)' AND header.content !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L is a secret, and must not be in the database', header.name),
                'Use a reference: file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    IF NEW.secrets IS NULL OR cardinality(NEW.secrets) > 4 THEN
        PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be a list of at most 4 references',
            'Use ''{}'' for none; while a secret is rotated, two.');
    END IF;
    FOREACH secret IN ARRAY NEW.secrets LOOP
        IF secret IS NULL OR length(secret) > 256 OR secret COLLATE "C" !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be references; a secret must not be in the database',
                'Use file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    IF NEW.max_in_flight IS NULL OR NEW.max_in_flight < 0 THEN
        PERFORM pacer.refuse('destinations', 'max_in_flight', 'destinations.max_in_flight must not be negative', 'Use 0 for as many as the sink has.');
    ELSIF NOT isfinite(NEW.disabled_at) OR NOT isfinite(NEW.failing_since) THEN
        PERFORM pacer.refuse('destinations', 'disabled_at', 'destinations.disabled_at and failing_since must not be infinite', 'Use now(), or null.');
    ELSIF length(NEW.disabled_reason) > 500 THEN
        PERFORM pacer.refuse('destinations', 'disabled_reason', 'destinations.disabled_reason has more than 500 characters', 'Use a shorter one.');
    END IF;
    NEW.revision := nextval('pacer.revisions');
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.check_destination() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    header record;
    secret text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW.disabled_at IS NULL AND OLD.disabled_at IS NOT NULL THEN
            NEW.disabled_reason := NULL; -- it begins anew
            NEW.failing_since := NULL;
        ELSIF NEW.url IS DISTINCT FROM OLD.url THEN
            NEW.failing_since := NULL;
        END IF;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        END IF;
        IF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('destinations', 'id', 'destinations.id cannot be changed: jobs name it',
                'Insert a destination with the new id.');
        END IF;
    END IF;
    PERFORM pacer.check_id('destinations', 'id', NEW.id);
    IF NEW.sink IS NOT NULL THEN
        PERFORM pacer.check_id('destinations', 'sink', NEW.sink);
    END IF;
    IF NEW.url IS NULL OR length(NEW.url) > 2048 OR NEW.url COLLATE "C" !~ '^https?://[^/?#@]+([/?][!-~]*)?$'
            OR NEW.url COLLATE "C" !~ '^[!-~]+$' OR position('#' IN NEW.url) > 0 THEN
        PERFORM pacer.refuse('destinations', 'url', 'destinations.url must be an address without a user and a fragment',
            'Use one of at most 2048 characters, such as https://hooks.example.com/orders; a user and a password belong into headers, as a reference.');
    END IF;
    IF jsonb_typeof(NEW.headers) IS DISTINCT FROM 'object' THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers must be a JSON object of names and values',
            'Use one such as {"x-tenant": "blue", "authorization": "file:shop-7"}.');
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(NEW.headers)) > 32 THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers has more than 32 headers', 'Use fewer.');
    END IF;
    FOR header IN SELECT e.key AS name, e.value AS value, e.value #>> '{}' AS content FROM jsonb_each(NEW.headers) AS e LOOP
        IF header.name COLLATE "C" !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,128}$' OR jsonb_typeof(header.value) <> 'string' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: %L must be the name of a header, with a text', left(header.name, 64)),
                'Use one such as {"x-tenant": "blue"}.');
        ELSIF length(header.content) > 2048 OR header.content ~ '[\x01-\x08\x0A-\x1F\x7F]' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L must be one line of at most 2048 characters', header.name),
                'Use a shorter one, or a reference, file:NAME.');
        ELSIF header.name ~* '(authorization|cookie|secret|token|password|api-?key)' AND header.content !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L is a secret, and must not be in the database', header.name),
                'Use a reference: file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    IF NEW.secrets IS NULL OR cardinality(NEW.secrets) > 4 THEN
        PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be a list of at most 4 references',
            'Use ''{}'' for none; while a secret is rotated, two.');
    END IF;
    FOREACH secret IN ARRAY NEW.secrets LOOP
        IF secret IS NULL OR length(secret) > 256 OR secret COLLATE "C" !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be references; a secret must not be in the database',
                'Use file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    IF NEW.max_in_flight IS NULL OR NEW.max_in_flight < 0 THEN
        PERFORM pacer.refuse('destinations', 'max_in_flight', 'destinations.max_in_flight must not be negative', 'Use 0 for as many as the sink has.');
    ELSIF NOT isfinite(NEW.disabled_at) OR NOT isfinite(NEW.failing_since) THEN
        PERFORM pacer.refuse('destinations', 'disabled_at', 'destinations.disabled_at and failing_since must not be infinite', 'Use now(), or null.');
    ELSIF length(NEW.disabled_reason) > 500 THEN
        PERFORM pacer.refuse('destinations', 'disabled_reason', 'destinations.disabled_reason has more than 500 characters', 'Use a shorter one.');
    END IF;
    NEW.revision := nextval('pacer.revisions');
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd
