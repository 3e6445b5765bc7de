-- Metrics and lists name jobs without a campaign "(unknown)", so no campaign may have that id.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.check_id(relation text, field text, value text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR length(value) > 256 OR value COLLATE "C" !~ '^[!-~]+$' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must be an id, not %L', relation, field, left(value, 64)),
            'Use 1 to 256 printable ASCII characters without spaces.');
    ELSIF relation = 'campaigns' AND field = 'id' AND value = '(unknown)' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must not be %L, which stands for jobs without a campaign', relation, field, value),
            'Choose another id.');
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.check_id(relation text, field text, value text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR length(value) > 256 OR value COLLATE "C" !~ '^[!-~]+$' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must be an id, not %L', relation, field, left(value, 64)),
            'Use 1 to 256 printable ASCII characters without spaces.');
    END IF;
END $$;
-- +goose StatementEnd
